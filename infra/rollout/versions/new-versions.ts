import { hasSameContent } from "../../aws/lambda-functions.ts";
import { Complaint } from "../../cli/complaint.ts";
import { formatCount, runInParallel } from "../../cli/progress.ts";
import type { RuleChangePlan } from "../plan/plan.ts";
import { maxParallelFunctionChanges, type PreparedDeployment } from "../preparation.ts";
import {
  checkPhasePairCompatibility,
  findRulesServedInBothPhases,
  type RuleServedInBothPhases,
  runCases,
} from "./case-runs.ts";
import { listReleasedVersions } from "./releases.ts";

/** Publishes new versions of changed rules, and tests them, also along with old ones. Returns the rules' versions. */
export const publishVersions = async ({ job, plan, releases }: PreparedDeployment): Promise<Map<string, string>> => {
  const { functions } = job.stage;
  const isChanged = ({ known, changes }: RuleChangePlan) => known === undefined || changes.length > 0;
  const versions = new Map(
    plan.parts.flatMap(({ part, known }) => (known ? [[part.name, known.ruleVersion.version] as const] : [])),
  );
  const changing = plan.parts.filter(isChanged);
  if (changing.length === 0) return versions;
  await job.progress.step("versions", async (tell) => {
    let done = 0;
    let reused = 0;
    await runInParallel(maxParallelFunctionChanges, changing, async ({ part: { name, wanted }, known }) => {
      const released = listReleasedVersions(releases.all, name);
      // A version that was live before has passed its cases, and is used again.
      const reusable = known?.versions.findLast(
        (version) => released.includes(version.version) && hasSameContent(version, wanted),
      );
      if (reusable) {
        reused += 1;
        // $LATEST always has the content that was deployed last, as after `publishVersion`.
        await functions.setLatest(name, wanted);
      }
      versions.set(name, reusable?.version ?? (await functions.publishVersion(name, wanted)));
      tell(++done, changing.length);
    });
    return `${changing.length - reused} published${reused > 0 ? `, ${reused} reused` : ""}`;
  });
  const untested = changing.filter(
    ({ part: { name } }) => !releases.all.some(({ rules }) => rules[name]?.version === versions.get(name)),
  );
  if (untested.length === 0) return versions;
  await job.progress.step("cases", async (tell) => {
    let [done, cases] = [0, 0];
    const found = await runInParallel(maxParallelFunctionChanges, untested, async ({ part }) => {
      const version = versions.get(part.name) ?? "";
      const result = await runCases(functions, part.listed, version, part);
      cases += result.cases;
      tell(++done, untested.length);
      return result.faults.map((fault) => `version ${version} of ${fault}`);
    });
    const faults = found.flat();
    if (faults.length > 0)
      throw new Complaint(`no alias was moved, because the new versions fail their cases:\n${faults.join("\n")}`, 1);
    return `${cases} passed, of ${formatCount(untested.length, "rule")}`;
  });
  await requireCompatibilityWithOldVersions({ job, plan, releases }, versions);
  return versions;
};

/**
 * Throws if a rule's old and new version don't accept what the other one writes. While aliases move, a request may be
 * mutated by one version and validated by the other.
 */
const requireCompatibilityWithOldVersions = async (
  { job, plan, releases }: Pick<PreparedDeployment, "job" | "plan" | "releases">,
  versions: Map<string, string>,
) => {
  const before = new Map(
    plan.parts.flatMap(({ part: { name }, known }) => {
      const version = known?.ruleVersion.version ?? "";
      // Leaves out a rule whose first deployment failed: no release has its version, and no cluster calls it.
      return releases.all.some(({ rules }) => rules[name]?.version === version) ? [[name, version] as const] : [];
    }),
  );
  const phasePairs = findRulesServedInBothPhases(plan.parts.map(({ part }) => part.listed)).filter(
    ({ mutator, validator }) =>
      [mutator, validator].every((name) => before.has(name)) &&
      [mutator, validator].some((name) => before.get(name) !== versions.get(name)),
  );
  if (phasePairs.length === 0) return;
  await job.progress.step("compatibility", async () => {
    const selectVersions = (all: ReadonlyMap<string, string>, { mutator, validator }: RuleServedInBothPhases) => ({
      mutator: all.get(mutator) ?? "",
      validator: all.get(validator) ?? "",
    });
    const found = await runInParallel(maxParallelFunctionChanges, phasePairs, (pair) =>
      checkPhasePairCompatibility(
        job.stage.functions,
        pair,
        selectVersions(before, pair),
        selectVersions(versions, pair),
      ),
    );
    const faults = found.flat();
    if (faults.length > 0)
      throw new Complaint(
        `no alias was moved, because a request could meet an old and a new version that disagree:\n${faults.join("\n")}`,
        1,
      );
    return `${formatCount(phasePairs.length, "rule")} whose old and new versions accept each other's changes`;
  });
};
