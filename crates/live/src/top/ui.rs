//! The user's choices in the live view, and the effect of a key on them.
//!
//! # Boundary
//! A pure function of the choices, of a key, and of the shown figures. It returns an [`Action`], which [`super`]
//! carries out.
//!
//! # Why
//! A selection is a path, not a line: lists are sorted again each second, and a drop by line would drop another
//! directory. A selected directory without cached entries stays in the list.

use super::figures::{DirectoryFigures, Figures, MountFigures};
use super::keys::Key;
use super::view;
use std::borrow::Cow;
use uvfs_control::cleaned::Raw;

/// The order of directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sort {
    /// By their bytes.
    #[default]
    Bytes,
    /// How often it is asked about.
    Requests,
    /// By how much that changes.
    Growth,
    Names,
    Dirty,
    Path,
}

impl Sort {
    const ALL: [Sort; 6] =
        [Sort::Bytes, Sort::Requests, Sort::Growth, Sort::Names, Sort::Dirty, Sort::Path];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Sort::Bytes => "bytes",
            Sort::Requests => "requests",
            Sort::Growth => "growth",
            Sort::Names => "names",
            Sort::Dirty => "dirty",
            Sort::Path => "path",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|one| *one == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// A directory of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) mountpoint: String,
    pub(crate) path: Raw,
}

/// An action to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Nothing,
    Quit,
    /// To empty uvfs's caches of a directory, and the kernel's.
    Drop(Place),
    /// To mark one, with a word that `uvfs policy` takes.
    Mark(Place, &'static str),
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ui {
    mountpoint: Option<String>,
    path: Option<Raw>,
    pub(crate) sort: Sort,
    pub(crate) paused: bool,
    /// The directory to drop if the answer is yes.
    pub(crate) asked: Option<Place>,
    /// The result of the last action.
    pub(crate) said: Option<String>,
    /// The list of keys is shown.
    pub(crate) help: bool,
    /// The text that the shown directories have in their paths.
    pub(crate) search: Option<Search>,
}

/// A search for directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Search {
    pub(crate) text: String,
    /// Letters are added to the text.
    pub(crate) typing: bool,
}

impl Search {
    /// Most letters of a text.
    const LENGTH_MAX: usize = 200;

    /// Whether the path as it is shown has the text, in large or small letters.
    fn finds(&self, path: &Raw) -> bool {
        view::path(&path.0).to_lowercase().contains(&self.text.to_lowercase())
    }
}

impl Ui {
    /// The mount that is shown, and its number.
    pub(crate) fn mount<'f>(&self, figures: &'f Figures) -> Option<(usize, &'f MountFigures)> {
        let is_chosen = |mount: &MountFigures| Some(&mount.mountpoint) == self.mountpoint.as_ref();
        let at = figures.mounts.iter().position(is_chosen).unwrap_or(0);
        figures.mounts.get(at).map(|mount| (at, mount))
    }

    /// The selected directory of `mount`.
    fn chosen(&self, mount: &MountFigures) -> Option<&Raw> {
        self.path.as_ref().filter(|_| self.mountpoint.as_ref() == Some(&mount.mountpoint))
    }

    /// Directories of `mount` in the order of the list.
    pub(crate) fn directories<'f>(
        &self,
        mount: &'f MountFigures,
    ) -> Vec<Cow<'f, DirectoryFigures>> {
        let mut all: Vec<_> = mount.directories.iter().map(Cow::Borrowed).collect();
        let chosen = self.chosen(mount).filter(|path| all.iter().all(|one| one.path != **path));
        all.extend(chosen.map(|path| Cow::Owned(DirectoryFigures::nothing(path.clone()))));
        if let Some(search) = &self.search {
            all.retain(|one| search.finds(&one.path));
        }
        all.sort_by(|one, other| {
            let first = match self.sort {
                Sort::Bytes => other.bytes.cmp(&one.bytes),
                Sort::Requests => {
                    let rate = |one: &DirectoryFigures| one.requests_per_second.unwrap_or(-1.0);
                    rate(other).total_cmp(&rate(one))
                }
                Sort::Growth => {
                    let change =
                        |one: &DirectoryFigures| one.bytes_per_second.map_or(-1.0, f64::abs);
                    change(other).total_cmp(&change(one))
                }
                Sort::Names => other.names.cmp(&one.names),
                Sort::Dirty => other.dirty_bytes.cmp(&one.dirty_bytes),
                Sort::Path => one.path.0.cmp(&other.path.0),
            };
            first.then(other.bytes.cmp(&one.bytes)).then_with(|| one.path.0.cmp(&other.path.0))
        });
        all
    }

    /// The line of `directories` that is selected.
    pub(crate) fn line(&self, directories: &[Cow<'_, DirectoryFigures>]) -> usize {
        let is_chosen = |one: &Cow<'_, DirectoryFigures>| Some(&one.path) == self.path.as_ref();
        directories.iter().position(is_chosen).unwrap_or(0)
    }

    /// The effect of `key`.
    pub(crate) fn press(&mut self, key: Key, figures: &Figures) -> Action {
        if let Some(place) = self.asked.take() {
            return match key {
                Key::Letter('y' | 'Y') => Action::Drop(place),
                Key::Interrupt => Action::Quit,
                _ => {
                    self.said = Some("not dropped".into());
                    Action::Nothing
                }
            };
        }
        if self.help {
            self.help = false;
            return if key == Key::Interrupt { Action::Quit } else { Action::Nothing };
        }
        if self.types(key, figures) {
            return Action::Nothing;
        }
        if let Key::Letter('d' | 'D' | 'K' | 'O' | 'N') = key {
            // The first line is selected when an action needs a selection.
            self.select(figures, 0);
        }
        match key {
            Key::Letter('q' | 'Q') | Key::Interrupt => return Action::Quit,
            Key::Letter('p' | 'P' | ' ') => self.paused = !self.paused,
            Key::Letter('s' | 'S') => self.sort = self.sort.next(),
            Key::Up | Key::Letter('k') => self.select(figures, -1),
            Key::Down | Key::Letter('j') => self.select(figures, 1),
            Key::Left | Key::Letter('h') => self.turn(figures, -1),
            Key::Right | Key::Letter('l') => self.turn(figures, 1),
            Key::Letter('d' | 'D') => self.asked = self.place(figures),
            Key::Letter('K') => return self.mark(figures, "keep"),
            Key::Letter('O') => return self.mark(figures, "once"),
            Key::Letter('N') => return self.mark(figures, "none"),
            Key::Letter('?') => self.help = true,
            Key::Letter('/') => {
                let text = self.search.take().unwrap_or_default().text;
                self.search = Some(Search { text, typing: true });
            }
            Key::Escape => (self.said, self.search) = (None, None),
            Key::Enter | Key::Back | Key::Letter(_) => {}
        }
        Action::Nothing
    }

    /// Takes `key` as a part of the text of a search, if one is typed.
    fn types(&mut self, key: Key, figures: &Figures) -> bool {
        let Some(search) = self.search.as_mut().filter(|search| search.typing) else {
            return false;
        };
        match key {
            Key::Letter(letter) => {
                if search.text.chars().count() < Search::LENGTH_MAX {
                    search.text.push(letter);
                }
            }
            Key::Back => drop(search.text.pop()),
            Key::Enter => {
                search.typing = false;
                if search.text.is_empty() {
                    self.search = None;
                }
                self.select(figures, 0);
            }
            // Arrows move, Esc and Ctrl-C end.
            _ => return false,
        }
        true
    }

    fn mark(&self, figures: &Figures, policy: &'static str) -> Action {
        self.place(figures).map_or(Action::Nothing, |place| Action::Mark(place, policy))
    }

    /// The directory that is selected.
    fn place(&self, figures: &Figures) -> Option<Place> {
        let (_, mount) = self.mount(figures)?;
        let directories = self.directories(mount);
        let one = directories.get(self.line(&directories))?;
        Some(Place { mountpoint: mount.mountpoint.clone(), path: one.path.clone() })
    }

    fn select(&mut self, figures: &Figures, step: isize) {
        let Some((_, mount)) = self.mount(figures) else { return };
        let directories = self.directories(mount);
        let at = self.line(&directories).saturating_add_signed(step);
        let at = at.min(directories.len().saturating_sub(1));
        self.path = directories.get(at).map(|one| one.path.clone());
        self.mountpoint = Some(mount.mountpoint.clone());
    }

    fn turn(&mut self, figures: &Figures, step: isize) {
        let Some((at, _)) = self.mount(figures) else { return };
        let count = figures.mounts.len() as isize;
        let at = (at as isize + step).rem_euclid(count) as usize;
        self.mountpoint = figures.mounts.get(at).map(|mount| mount.mountpoint.clone());
        self.path = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::{between, tests::samples};
    use super::*;

    fn figures() -> Figures {
        let (earlier, later) = samples();
        between(&earlier, &later)
    }

    fn paths(ui: &Ui, figures: &Figures) -> Vec<String> {
        let (_, mount) = ui.mount(figures).unwrap();
        let path =
            |one: &Cow<'_, DirectoryFigures>| String::from_utf8_lossy(&one.path.0).into_owned();
        ui.directories(mount).iter().map(path).collect()
    }

    #[test]
    fn what_is_selected_stays_selected_when_it_is_sorted_anew() {
        let (figures, mut ui) = (figures(), Ui::default());
        assert_eq!(paths(&ui, &figures), ["/b\u{1b}[2Jad", "/photos", "/"]);
        ui.press(Key::Down, &figures);
        assert_eq!(ui.press(Key::Letter('d'), &figures), Action::Nothing);
        assert_eq!(ui.asked.as_ref().unwrap().path, Raw(b"/photos".to_vec()));
        ui.asked = None;
        ui.press(Key::Letter('s'), &figures);
        assert_eq!((ui.sort, &*paths(&ui, &figures)[0]), (Sort::Requests, "/photos"));
        let (_, mount) = ui.mount(&figures).unwrap();
        assert_eq!(ui.line(&ui.directories(mount)), 0, "followed to its new line");
        for _ in 0..9 {
            ui.press(Key::Down, &figures);
        }
        assert_eq!(ui.line(&ui.directories(mount)), 2, "the last one is the end");
        (0..5).for_each(|_| drop(ui.press(Key::Letter('s'), &figures)));
        assert_eq!(ui.sort, Sort::Bytes, "round and round");
    }

    /// Bug: after a drop the list no longer had the directory, and the first line was selected: a second `d` asked
    /// about another one.
    #[test]
    fn a_directory_that_leaves_the_list_stays_selected() {
        let (mut figures, mut ui) = (figures(), Ui::default());
        ui.press(Key::Down, &figures);
        figures.mounts[0].directories.retain(|one| one.path.0 != b"/photos");
        let (_, mount) = ui.mount(&figures).unwrap();
        let listed = ui.directories(mount);
        let line = ui.line(&listed);
        assert_eq!((&*listed[line].path.0, listed[line].bytes), (&b"/photos"[..], 0));
        assert_eq!(listed.len(), 3);
        ui.press(Key::Letter('d'), &figures);
        assert_eq!(ui.asked.as_ref().unwrap().path, Raw(b"/photos".to_vec()));
        ui.press(Key::Escape, &figures);
        ui.press(Key::Up, &figures);
        assert_eq!(paths(&ui, &figures), ["/b\u{1b}[2Jad", "/"], "until another one is selected");
        // The path is that of one mount alone.
        ui.press(Key::Down, &figures);
        figures.mounts.remove(0);
        assert_eq!(paths(&ui, &figures), [""; 0]);
    }

    #[test]
    fn nothing_is_dropped_without_a_yes() {
        let (figures, mut ui) = (figures(), Ui::default());
        for no in [Key::Letter('n'), Key::Enter, Key::Escape, Key::Letter('d')] {
            ui.press(Key::Letter('d'), &figures);
            assert_eq!(ui.press(no, &figures), Action::Nothing);
            assert_eq!((ui.said.as_deref(), &ui.asked), (Some("not dropped"), &None));
        }
        ui.press(Key::Letter('d'), &figures);
        // Another directory is the first one by now; the drop concerns the one in the question.
        ui.sort = Sort::Path;
        let Action::Drop(place) = ui.press(Key::Letter('y'), &figures) else { panic!("no drop") };
        assert_eq!(place.path, Raw(b"/b\x1b[2Jad".to_vec()));
        assert_eq!(place.mountpoint, "/mnt/data");
        ui.press(Key::Letter('d'), &figures);
        assert_eq!(ui.press(Key::Interrupt, &figures), Action::Quit);
    }

    #[test]
    fn a_search_shows_the_directories_that_have_its_text() {
        let (figures, mut ui) = (figures(), Ui::default());
        let press = |ui: &mut Ui, keys: &[Key]| {
            for key in keys {
                assert_eq!(ui.press(*key, &figures), Action::Nothing, "{key:?} is no command");
            }
            paths(ui, &figures)
        };
        assert_eq!(press(&mut ui, &[Key::Letter('/')]).len(), 3, "no text yet");
        // These letters are commands elsewhere.
        let typed = ['P', 'h', 'o', 'q'].map(Key::Letter);
        assert_eq!(press(&mut ui, &typed), [""; 0]);
        assert_eq!(ui.place(&figures), None, "no directory to drop");
        assert_eq!(press(&mut ui, &[Key::Back]), ["/photos"]);
        assert_eq!(press(&mut ui, &[Key::Enter]), ["/photos"]);
        assert_eq!(press(&mut ui, &[Key::Letter('d')]), ["/photos"]);
        assert_eq!(ui.asked.take().unwrap().path, Raw(b"/photos".to_vec()));
        press(&mut ui, &[Key::Letter('/')]);
        assert_eq!(ui.search.as_ref().unwrap().text, "Pho", "it goes on");
        assert_eq!(press(&mut ui, &[Key::Escape]).len(), 3);
        assert_eq!(ui.search, None);
        // The directory that was selected is not one that the search finds: the first line is selected.
        press(&mut ui, &[Key::Letter('/'), Key::Letter('b'), Key::Letter('\\'), Key::Enter]);
        press(&mut ui, &[Key::Letter('d')]);
        assert_eq!(ui.asked.take().unwrap().path, Raw(b"/b\x1b[2Jad".to_vec()));
        press(&mut ui, &[Key::Letter('/'), Key::Back, Key::Back, Key::Enter]);
        assert_eq!(ui.search, None, "an empty text ends it");
        press(&mut ui, &[Key::Letter('/')]);
        assert_eq!(ui.press(Key::Interrupt, &figures), Action::Quit);
    }

    #[test]
    fn any_key_ends_the_help_and_has_no_other_effect() {
        let (figures, mut ui) = (figures(), Ui::default());
        for key in [Key::Letter('q'), Key::Letter('d'), Key::Escape, Key::Letter('?')] {
            assert_eq!(ui.press(Key::Letter('?'), &figures), Action::Nothing);
            assert!(ui.help);
            assert_eq!(ui.press(key, &figures), Action::Nothing);
            assert!(!ui.help && ui.asked.is_none());
        }
        ui.press(Key::Letter('?'), &figures);
        assert_eq!(ui.press(Key::Interrupt, &figures), Action::Quit);
    }

    #[test]
    fn marks_mounts_and_ends() {
        let (figures, mut ui) = (figures(), Ui::default());
        let marked = ui.press(Key::Letter('K'), &figures);
        assert!(matches!(marked, Action::Mark(place, "keep") if place.mountpoint == "/mnt/data"));
        assert!(matches!(ui.press(Key::Letter('O'), &figures), Action::Mark(_, "once")));
        assert!(matches!(ui.press(Key::Letter('N'), &figures), Action::Mark(_, "none")));
        ui.press(Key::Right, &figures);
        assert_eq!(ui.mount(&figures).unwrap().0, 1);
        assert_eq!(ui.press(Key::Letter('K'), &figures), Action::Nothing, "it has no directories");
        ui.press(Key::Letter('d'), &figures);
        assert_eq!(ui.asked, None);
        ui.press(Key::Right, &figures);
        assert_eq!(ui.mount(&figures).unwrap().0, 0);
        ui.press(Key::Letter(' '), &figures);
        assert!(ui.paused);
        assert_eq!(ui.press(Key::Letter('q'), &figures), Action::Quit);
        let none = Figures { seconds: 1.0, mounts: Vec::new() };
        for key in [Key::Down, Key::Right, Key::Letter('d'), Key::Letter('K')] {
            assert_eq!(ui.press(key, &none), Action::Nothing);
        }
    }
}
