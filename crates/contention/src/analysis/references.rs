//! A profile's records by their numbers, and what its functions and lines are called by.
//!
//! # Boundary
//! Look-ups that tables ([`super::index`]) and comparisons ([`crate::places`]) share; nothing is summed.
//!
//! # Why
//! A function without a name must be called the same by a report, a rule and a comparison: by its module's
//! file, since the numbers of modules differ between profiles. Weakness: two modules of one file name are one.

use std::collections::BTreeMap;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Frame, Object, Site, Type};

/// See the module.
pub(crate) struct References<'p> {
    pub(crate) line_bytes: u64,
    pub(crate) types: BTreeMap<u32, &'p Type>,
    objects: BTreeMap<(u64, u32), &'p Object>,
    sites: BTreeMap<(u64, u32), &'p Site>,
    modules: BTreeMap<u32, &'p str>,
}

impl<'p> References<'p> {
    pub(crate) fn new(profile: &'p Profile) -> Self {
        Self {
            line_bytes: profile.meta.machine.line_bytes.max(1),
            types: profile.types.iter().map(|one| (one.id, one)).collect(),
            objects: profile.objects.iter().map(|one| ((one.seed, one.id), one)).collect(),
            sites: profile.sites.iter().map(|one| ((one.seed, one.id), one)).collect(),
            modules: profile.modules.iter().map(|one| (one.id, one.path.as_str())).collect(),
        }
    }

    pub(crate) fn object(&self, seed: u64, id: u32) -> Option<&'p Object> {
        self.objects.get(&(seed, id)).copied()
    }

    pub(crate) fn site(&self, seed: u64, id: u32) -> Option<&'p Site> {
        self.sites.get(&(seed, id)).copied()
    }

    /// The type of an object, or of its elements.
    pub(crate) fn type_of(&self, object: &Object) -> Option<&'p Type> {
        self.types.get(&object.type_id?).copied()
    }

    /// The last part of a module's path.
    pub(crate) fn module(&self, id: u32) -> &'p str {
        let path = self.modules.get(&id).copied().unwrap_or("?");
        path.rsplit('/').next().unwrap_or(path)
    }

    /// The function of a site, as the tables print it.
    pub(crate) fn function(&self, site: &Site) -> String {
        if !site.function.is_empty() {
            return site.function.clone();
        }
        match site.frames.first() {
            Some(Frame { function, .. }) if !function.is_empty() => function.clone(),
            _ => format!("{}+{:#x}", self.module(site.place.module), site.place.offset),
        }
    }

    /// The number of the real line that holds `offset` of `object`, in its run's address space.
    pub(crate) fn line(&self, object: &Object, offset: u64) -> u64 {
        object.address.wrapping_add(offset) / self.line_bytes
    }
}

#[cfg(test)]
mod tests {
    use crate::analysis::fixture::profile;
    use crate::analysis::index::Index;
    use crate::places::Places;

    #[test]
    fn a_function_without_a_name_is_called_the_same_everywhere() {
        // A comparison once called it by its module's number, which differs from profile to profile.
        let mut profile = profile();
        for site in &mut profile.sites {
            (site.function, site.frames) = (String::new(), Vec::new());
        }
        let site = &profile.sites[0];
        let printed = Index::new(&profile).function(site);
        let path = &profile.modules.iter().find(|one| one.id == site.place.module).unwrap().path;
        assert!(printed.starts_with(path.rsplit('/').next().unwrap()), "{printed}");
        let compared = Places::new(&profile).function(site.seed, site.id);
        assert_eq!(compared.as_deref(), Some(printed.as_str()));
    }
}
