#!/bin/bash
# git as its users drive it: a project grown, branched, merged, packed, cloned, and checked by fsck.
. "$(dirname "$0")/../lib.sh" "$@"

debian git git
export HOME=$folder GIT_CONFIG_NOSYSTEM=1 GIT_TERMINAL_PROMPT=0 GIT_PAGER=cat
git config --global user.name conformance
git config --global user.email conformance@localhost
git config --global init.defaultBranch trunk
git config --global gc.autoDetach false
files=$(pick 400 2500)
project=$folder/project

# grow COUNT SEED: text files in a few levels of folders.
grow() {
  "$python" - "$1" "$2" <<'P'
import os, random, sys
count, seed = int(sys.argv[1]), int(sys.argv[2])
source = random.Random(seed)
for number in range(count):
    folder = os.path.join("part%02d" % (number % 23), "unit%d" % (number % 7))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "text%d-%d" % (seed, number)), "w") as text:
        for _ in range(source.randrange(1, 120)):
            text.write("%x\n" % source.getrandbits(200))
P
}
topic() {
  git switch -q -c "topic$1" trunk && grow 40 "$1" && git add . && git commit -q -m "topic $1"
}
unchanged() { [ -z "$(git status --porcelain)" ]; }
readers_and_a_writer() {
  local jobs=() bad=0
  for reader in 1 2 3; do
    (for turn in 1 2 3 4; do git -C "$folder/linked" status --porcelain && git -C "$folder/linked" log -1 || exit 1; done) &
    jobs+=($!)
  done
  for turn in 1 2 3; do echo "$turn" >>note && git add note && git commit -q -m "note $turn" || bad=1; done
  for job in "${jobs[@]}"; do wait "$job" || bad=1; done
  return $bad
}
stash_and_pop() {
  echo change >>note && git stash -q && unchanged && git stash pop -q && ! unchanged && git checkout -q note
}
bisect() {
  git bisect start HEAD HEAD~3 && git bisect run grep -q 1 note && git bisect reset
}
archive_is_the_tree() {
  mkdir "$folder/archive" && git archive trunk | tar -C "$folder/archive" -xf - &&
    diff -r --exclude=.git "$project" "$folder/archive"
}
export python folder project
export -f grow topic unchanged readers_and_a_writer stash_and_pop bisect archive_is_the_tree

check init git init -q "$project"
cd "$project" || { fail enter-project; finish; }
check files bash -c "grow $files 1"
check add git add .
check commit git commit -q -m first
check status-clean bash -c unchanged
for number in 2 3 4; do check "branch-$number" bash -c "topic $number"; done
check switch git switch -q trunk
check merge git merge -q -m merged topic2 topic3 topic4
check merged-clean bash -c unchanged
check fsck git fsck --full --strict
check rebase bash -c "git switch -q -c moved topic2 && git rebase -q topic3 && git switch -q trunk"
check move-folder bash -c "git mv part00 renamed && git commit -q -m moved && unchanged"
check clone-copy git clone -q --no-hardlinks "$project" "$folder/copied"
check clone-linked git clone -q --local "$project" "$folder/linked"
check same-tree diff -r --exclude=.git "$project" "$folder/copied"
check worktree bash -c "git worktree add -q '$folder/worktree' topic3 && git -C '$folder/worktree' fsck"
check write-while-read bash -c readers_and_a_writer
check pull git -C "$folder/copied" pull -q --ff-only
check stash bash -c stash_and_pop
check bisect bash -c bisect
check archive bash -c archive_is_the_tree
check executable bash -c "chmod +x note && git diff --summary | grep -q 'mode change' && git checkout -q note"
check symlink bash -c "ln -s note link && git add link && git commit -q -m link && rm link && git checkout -q link && [ \$(readlink link) = note ]"
check pack git gc -q --prune=now
check repack git repack -q -a -d -f
check fsck-packed git fsck --full --strict
check worktree-remove git worktree remove --force "$folder/worktree"
check clean bash -c "touch left-over && git clean -fdxq && unchanged"
finish
