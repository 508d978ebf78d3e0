//! Profiles of single runs to one of all.
//!
//! # Boundary
//! Records are put together as they are; only modules, which every run numbers for itself, get common
//! numbers.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Every other record has its seed, so nothing has to be added up here, and readers still see the spread
//! between seeds. Weakness: as long as all runs together.

use crate::Error;
use std::collections::HashMap;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Module, Place};

/// Puts `profiles` together, in their order. The first one's head is that of all.
///
/// # Errors
/// There are none, they are of different machines or commands, or one is damaged.
pub fn merge(profiles: Vec<Profile>) -> Result<Profile, Error> {
    let mut profiles = profiles.into_iter();
    let mut all = profiles.next().ok_or_else(|| Error::new("no profile to put together"))?;
    let mut modules = Modules::default();
    let numbers = modules.add(std::mem::take(&mut all.modules));
    renumber(&mut all, &numbers)?;
    for mut profile in profiles {
        if profile.meta.machine != all.meta.machine || profile.meta.command != all.meta.command {
            return Err(Error::new(
                "profiles of different machines or commands; run them again, together",
            ));
        }
        if let Some(run) =
            profile.runs.iter().find(|run| all.runs.iter().any(|seen| seen.seed == run.seed))
        {
            return Err(Error::new(format!("seed {} twice; name each once", run.seed)));
        }
        let numbers = modules.add(std::mem::take(&mut profile.modules));
        renumber(&mut profile, &numbers)?;
        all.runs.append(&mut profile.runs);
        all.objects.append(&mut profile.objects);
        all.sites.append(&mut profile.sites);
        all.samples.append(&mut profile.samples);
        all.heat.append(&mut profile.heat);
        all.histograms.append(&mut profile.histograms);
        all.locks.append(&mut profile.locks);
        all.threads.append(&mut profile.threads);
    }
    all.modules = modules.list;
    Ok(all)
}

#[derive(Debug, Default)]
struct Modules {
    list: Vec<Module>,
    numbers: HashMap<(String, Option<String>), u32>,
}

impl Modules {
    /// Adds those of one run; gives the common number of each.
    fn add(&mut self, modules: Vec<Module>) -> HashMap<u32, u32> {
        let mut of_run = HashMap::new();
        for module in modules {
            let key = (module.path.clone(), module.build_id.clone());
            let common = *self.numbers.entry(key).or_insert_with(|| {
                let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
                self.list.push(Module { id, ..module.clone() });
                id
            });
            of_run.insert(module.id, common);
        }
        of_run
    }
}

fn renumber(profile: &mut Profile, numbers: &HashMap<u32, u32>) -> Result<(), Error> {
    let objects = profile.objects.iter_mut().flat_map(|object| object.frames.iter_mut());
    let sites = profile
        .sites
        .iter_mut()
        .flat_map(|site| std::iter::once(&mut site.place).chain(site.callers.iter_mut()));
    for Place { module, .. } in objects.chain(sites) {
        *module = *numbers.get(module).ok_or_else(|| {
            Error::new(format!(
                "a profile names module {module} and has none of that number; run it again"
            ))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_coherence::Machine;
    use uvfs_coherence::profile::{FORMAT, Meta, Mode, Operation, Ordering, Run, Site};

    fn profile(seed: u64, modules: &[(u32, &str)], place: u32) -> Profile {
        let mut profile = Profile::new(Meta {
            format: FORMAT,
            tool: "test".into(),
            mode: Mode::Simulated,
            command: vec!["x".into()],
            machine: Machine::default(),
            computing: true,
            what_if: Vec::new(),
        });
        profile.runs.push(Run { seed, ..Run::default() });
        profile.modules = modules
            .iter()
            .map(|(id, path)| Module { id: *id, path: (*path).to_string(), build_id: None })
            .collect();
        profile.sites.push(Site {
            seed,
            id: 0,
            place: Place { module: place, offset: 16 },
            callers: vec![Place { module: place, offset: 32 }],
            operation: Operation::Load,
            bytes: 8,
            ordering: Ordering::Plain,
            frames: Vec::new(),
            function: String::new(),
        });
        profile
    }

    #[test]
    fn modules_get_common_numbers() {
        let first = profile(1, &[(0, "/a"), (1, "/b")], 1);
        let second = profile(2, &[(5, "/b"), (7, "/c")], 5);
        let all = merge(vec![first, second]).unwrap();
        let paths: Vec<_> =
            all.modules.iter().map(|module| (module.id, module.path.as_str())).collect();
        assert_eq!(paths, [(0, "/a"), (1, "/b"), (2, "/c")]);
        assert!(all.sites.iter().all(|site| site.place.module == 1 && site.callers[0].module == 1));
        assert_eq!(all.runs.iter().map(|run| run.seed).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        let one = profile(1, &[(0, "/a")], 0);
        assert!(merge(Vec::new()).is_err());
        assert!(
            merge(vec![one.clone(), one.clone()]).unwrap_err().to_string().contains("seed 1 twice")
        );
        let mut other = profile(2, &[(0, "/a")], 0);
        other.meta.machine.cores = 3;
        assert!(
            merge(vec![one.clone(), other]).unwrap_err().to_string().contains("different machines")
        );
        let broken = profile(2, &[(0, "/a")], 9);
        assert!(merge(vec![one, broken]).unwrap_err().to_string().contains("module 9"));
    }
}
