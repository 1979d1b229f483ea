//! Incremental builds: a build begins on an earlier template and runs only the new files, if files are only ever
//! added.
//!
//! An incremental build has the fingerprint of a full one with equal inputs. Therefore an earlier template will do
//! only if all its inputs are inputs of the new one, and if a full build would run the new files last.

use crate::about::{self, About};
use crate::provisioner::{Provisioner, Template};
use crate::{BuildPlan, FingerprintInputs, ProvisionError, Steps, TemplateSpec};

/// Earlier template that a build begins on. The cache does not evict it meanwhile.
pub(crate) struct Parent {
    pub(crate) template: Template,
    /// Number of SQL files that it has run.
    pub(crate) sql_files: usize,
    /// Names of the files that it has not run.
    pub(crate) added: Vec<String>,
    /// Time of its build, in seconds since 1970.
    created: u64,
}

impl Parent {
    pub(crate) fn plan(&self) -> BuildPlan {
        BuildPlan::Incremental { parent: self.template.fingerprint.clone(), added: self.added.clone() }
    }
}

impl Provisioner {
    /// Finds the cached template for a build of `spec` to begin on: the one with most of its files, the newest of
    /// several.
    pub(crate) fn parent(
        &self,
        spec: &TemplateSpec,
        fingerprint_inputs: &FingerprintInputs,
    ) -> Result<Option<Parent>, ProvisionError> {
        if !self.builds_on_others(spec) {
            return Ok(None);
        }
        let mut best: Option<Parent> = None;
        for name in self.cache.fingerprints()? {
            let Some(entry) = self.cache.examine(&name)? else { continue };
            let Some(about) = About::parse(&entry.about()) else { continue };
            let fingerprint = about.fingerprint_inputs.fingerprint();
            // A template from another machine may carry any description. Its name proves which inputs it has.
            if about.name.as_ref() != Some(&spec.title()) || fingerprint.as_str() != name {
                continue;
            }
            let Ok(added) = fingerprint_inputs.added_to(&about.fingerprint_inputs) else { continue };
            let better = best
                .as_ref()
                .is_none_or(|best| (added.len(), best.created) < (best.added.len(), about.created));
            if better {
                let template = Template { fingerprint, entry, database: spec.name.clone() };
                let sql_files = about.fingerprint_inputs.sql_files().len();
                best = Some(Parent { template, sql_files, added, created: about.created });
            }
        }
        Ok(best)
    }

    /// Explains why a build of `spec` runs all steps although its specification allows an incremental build.
    pub(crate) fn reasons_for_full_build(
        &self,
        spec: &TemplateSpec,
        fingerprint_inputs: &FingerprintInputs,
    ) -> Vec<String> {
        let last = about::last(&self.cache, spec).filter(|_| self.builds_on_others(spec));
        last.map_or_else(Vec::new, |last| match fingerprint_inputs.added_to(&last) {
            Err(reasons) => reasons,
            Ok(_) => vec!["the earlier template is not in the cache".to_owned()],
        })
    }

    /// Plans a build of `spec`.
    pub(crate) fn plan(
        &self,
        spec: &TemplateSpec,
        fingerprint_inputs: &FingerprintInputs,
    ) -> Result<BuildPlan, ProvisionError> {
        let parent = self.parent(spec, fingerprint_inputs)?;
        Ok(parent.map_or_else(
            || BuildPlan::Full { reasons: self.reasons_for_full_build(spec, fingerprint_inputs) },
            |parent| parent.plan(),
        ))
    }

    fn builds_on_others(&self, spec: &TemplateSpec) -> bool {
        spec.steps == Steps::AppendOnly && !self.server_options().full && !spec.runs_each_time()
    }
}
