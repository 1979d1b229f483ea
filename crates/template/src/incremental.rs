//! Shortens builds for projects that only ever add files, such as migrations. An incremental build starts from an
//! earlier template and runs only the new files.
//!
//! An incremental build has the same fingerprint as a full build with the same inputs, so it must produce the same
//! result. The earlier template must therefore meet two conditions: all its inputs are also inputs of the new template,
//! and a full build would run the new files last.

use crate::description::{self, EntryDescription};
use crate::provisioner::{Provisioner, Template};
use crate::{BuildPlan, FingerprintInputs, ProvisionError, Steps, TemplateSpec};

/// The earlier template that an incremental build starts from. During the build, the cache doesn't evict it.
pub(crate) struct Parent {
    pub(crate) template: Template,
    /// Number of SQL files already in the parent.
    pub(crate) sql_files: usize,
    /// Names of the new files, which aren't in the parent.
    pub(crate) added: Vec<String>,
    /// When the parent was built, in seconds since 1970.
    created: u64,
}

impl Parent {
    pub(crate) fn plan(&self) -> BuildPlan {
        BuildPlan::Incremental { parent: self.template.fingerprint.clone(), added: self.added.clone() }
    }
}

impl Provisioner {
    /// Finds a cached template that a build of `spec` can start from. The template with the most SQL files wins, or the
    /// newest of several such templates.
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
            let Some(about) = EntryDescription::parse(&entry.about()) else { continue };
            let fingerprint = about.fingerprint_inputs.fingerprint();
            // A template from another machine can contain any description. Only a matching fingerprint proves that the
            // template really has these inputs.
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

    /// Explains why a build of `spec` runs all steps, even though its specification allows an incremental build.
    pub(crate) fn reasons_for_full_build(
        &self,
        spec: &TemplateSpec,
        fingerprint_inputs: &FingerprintInputs,
    ) -> Vec<String> {
        let last = description::last_inputs(&self.cache, spec).filter(|_| self.builds_on_others(spec));
        last.map_or_else(Vec::new, |last| match fingerprint_inputs.added_to(&last) {
            Err(reasons) => reasons,
            Ok(_) => vec!["the earlier template is not in the cache".to_owned()],
        })
    }

    /// Plans how a build of `spec` starts.
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
