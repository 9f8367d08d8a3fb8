import { splitApiVersion } from "#lib/objects/api-version.ts";
import { listPolicyCueScripts, listPolicyReferences } from "#lib/policy/checks/located-values.ts";
import { findPolicyWarnings } from "#lib/policy/checks/warnings.ts";
import { checkPolicyDocuments } from "#lib/policy/policy-documents.ts";
import { findScriptFault, hasWrongOutput } from "#lib/policy/scripts.ts";
import { getPolicyName, type KinitirasPolicy } from "#lib/policy/types.ts";
import { newestKubernetes } from "#lib/since.ts";
import { buildKindIndex, describeSimilarKinds, isCustomResourceGroup } from "../apiserver/kinds/kinds.ts";
import { Complaint } from "../cli/complaint.ts";
import { toOneLine } from "../cli/terminal.ts";
import { readManifestsStrictly } from "../manifests/input.ts";
import type { FieldPath, Manifest } from "../manifests/manifests.ts";
import { explainAdmissionPolicies } from "./admission-explanations.ts";
import { formatFieldPosition, partitionManifests, readAdmissionPolicies } from "./admission-policies.ts";
import { describePolicyRules } from "./descriptions.ts";

/** The explanation of a policy. A rule refuses to load a policy with faults. */
interface PolicyExplanation {
  policy: string;
  does: string[];
  /** Sentences, which begin with file and line, as those in `warnings` do. */
  faults: string[];
  warnings: string[];
}

/** Reads policies in files and folders, but not the `caseFiles` (test cases) there. Throws if there is no policy. */
export const readPolicyManifests = async (
  paths: readonly string[],
  caseFiles: readonly string[] = [],
): Promise<Manifest[]> => {
  const manifests = await readManifestsStrictly(paths, undefined, caseFiles);
  if (manifests.length > 0) return manifests;
  throw new Complaint(`${paths.join(", ")} ${paths.length > 1 ? "contain" : "contains"} no policy`);
};

type EvaluateCue = (source: string) => Promise<string>;

/** Explains the policies of files: those of kinitiras, and admission policies. */
export const explainPolicyManifests = async (
  all: readonly Manifest[],
  evaluateCue: EvaluateCue,
): Promise<PolicyExplanation[]> => {
  const manifests = partitionManifests(all);
  return [
    ...(await explainKinitirasPolicies(manifests.kinitiras, evaluateCue)),
    ...(manifests.admission.length > 0 ? explainAdmissionPolicies(await readAdmissionPolicies(manifests)) : []),
  ];
};

/** Explains kinitiras' policies; those with faults come first. */
const explainKinitirasPolicies = async (
  manifests: readonly Manifest[],
  evaluateCue: EvaluateCue,
): Promise<PolicyExplanation[]> => {
  const checked = checkPolicyDocuments(manifests.map(({ object }) => object));
  const faultyFirst = checked.toSorted(
    (left, right) => Number(left.policy !== undefined) - Number(right.policy !== undefined),
  );
  return Promise.all(
    faultyFirst.map(async ({ name, policy, faults, document }) => {
      const explained = policy ? await explain(policy, evaluateCue) : { policy: name, does: [], faults, warnings: [] };
      const locate = (sentence: string) => `${formatPosition(manifests[document], sentence)} ${sentence}`;
      return { ...explained, faults: explained.faults.map(locate), warnings: explained.warnings.map(locate) };
    }),
  );
};

/** Returns `file:line` of the field at the beginning of a sentence about a policy. */
const formatPosition = (manifest: Manifest | undefined, sentence: string): string =>
  manifest ? formatFieldPosition(manifest, parseField(sentence)) : "";

/**
 * Returns the steps of a path at the beginning of a sentence: `["spec", "list", 0, "a b"]` for `spec.list[0]["a b"] is
 * …`.
 */
const parseField = (sentence: string): FieldPath => {
  const [field = ""] = /^(?:\.?[^\s.[\]":]+|\[\d+\]|\["(?:[^"\\]|\\.)*"\])+/.exec(sentence) ?? [];
  return [...field.matchAll(/\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|[^.[\]]+/g)].map(([name, index, key]) =>
    index === undefined ? (key ?? name) : Number(index),
  );
};

/** Explains a valid policy: what it does, and what is suspicious in it. */
const explain = async (policy: KinitirasPolicy, evaluateCue: EvaluateCue): Promise<PolicyExplanation> => {
  const scripts = await Promise.all(
    listPolicyCueScripts(policy).map(({ at, what }) => checkScript(at, what, evaluateCue)),
  );
  return {
    policy: `${policy.kind} ${getPolicyName(policy)}`,
    does: describePolicyRules(policy),
    faults: scripts.flatMap(({ faults }) => faults),
    warnings: [
      ...findPolicyWarnings(policy),
      ...warnOfAbsentKinds(policy),
      ...scripts.flatMap(({ warnings }) => warnings),
    ],
  };
};

/** Checks a CUE script: whether it compiles, and whether it sets the right field to a value of the right type. */
const checkScript = async (
  at: string,
  script: string,
  evaluateCue: EvaluateCue,
): Promise<Pick<PolicyExplanation, "faults" | "warnings">> => {
  const fault = await findScriptFault(script, evaluateCue);
  if (fault !== undefined) return { faults: [`${at} does not compile: ${fault}`], warnings: [] };
  const [output, shape] = at.startsWith("spec.validateRules")
    ? (["validate", 'a struct, such as {valid: false, reason: "…"}'] as const)
    : (["patches", 'a list, such as [{op: "remove", path: "…"}]'] as const);
  // A script in the field `cue` sets an output. One in the field `renderedCue` is never run: it is only for readers.
  const isWrong = at.endsWith(".cue") && (await hasWrongOutput(script, output, evaluateCue));
  return { faults: [], warnings: isWrong ? [`${at} must set ${output} to ${shape}: every request fails`] : [] };
};

/** Warns of kinds that don't exist in the groups of Kubernetes itself, which have no CustomResourceDefinitions. */
const warnOfAbsentKinds = (policy: KinitirasPolicy): string[] => {
  const selectors = (policy.spec.resourceSelectors ?? []).map((what, index) => {
    return { at: `spec.resourceSelectors[${index}]`, what, effect: "selects nothing" };
  });
  const references = listPolicyReferences(policy).flatMap(({ at, what: { from, k8s }, isUsed }) =>
    from === "k8s" && k8s && isUsed
      ? [{ at: `${at}.k8s`, what: k8s, effect: "finds nothing, and every request fails" }]
      : [],
  );
  return [...selectors, ...references]
    .filter(({ what: { apiVersion, kind } }) => {
      const isPattern = apiVersion.includes("*") || kind.includes("*");
      return (
        !isPattern &&
        !isCustomResourceGroup(splitApiVersion(apiVersion).group) &&
        kinds.of(apiVersion, kind) === undefined
      );
    })
    .map(({ at, what: { apiVersion, kind }, effect }) => {
      return `${at} ${effect}: kind ${kind} doesn't exist in ${apiVersion} of Kubernetes ${newestKubernetes}${describeSimilarKinds(kind)}`;
    });
};

const kinds = buildKindIndex([]);

/** Returns an explanation as text: a title and a list for each part that isn't empty. */
export const formatExplanation = ({ policy, ...parts }: PolicyExplanation): string => {
  const titles = [
    ["What it does", parts.does],
    ["What is wrong with it", parts.faults],
    ["What to look at", parts.warnings],
  ] as const;
  const blocks = titles
    .filter(([, lines]) => lines.length > 0)
    .map(([title, lines]) => `\n${title}:\n${lines.map((line) => `- ${toOneLine(line)}\n`).join("")}`);
  return `${toOneLine(policy)}\n${blocks.join("")}`;
};
