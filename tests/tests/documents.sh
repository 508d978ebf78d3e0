# Before the blocks of a page: private places for what they mount, and one shell for all of them.
exec 2>&1
mount --make-rprivate /
for place in /srv /mnt /run; do mount -t tmpfs tmpfs "$place"; done

# Where a command must succeed, this stops the page when it fails.
FAILED='echo "@@failed ($?): $BASH_COMMAND"; exit 1'

# A reader's cargo builds these programs; this run has built them.
cargo() {
  case "$*" in
    "run --release -- "*) shift 3; uvfs "$@" ;;
    "install --locked --path "*) test -f "$REPOSITORY/$4/src/main.rs" -o -d "$REPOSITORY/$4/src/bin" ;;
    *) echo "no such command of cargo is known here: cargo $*"; return 1 ;;
  esac
}
