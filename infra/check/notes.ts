import { toMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { KindIndex } from "../apiserver/kinds/kinds.ts";
import { formatPage } from "../catalogue/sources.ts";
import { isCheckout } from "../cli/roots.ts";
import type { ManifestInput } from "../manifests/input.ts";
import { type FieldPath, type Manifest, toSourceName } from "../manifests/manifests.ts";
import { formatBuildCommand } from "../manifests/parts.ts";
import { findPosition } from "../manifests/positions.ts";
import { type Assumption, formatAssumedObject } from "./evaluation/assumptions.ts";
import type { CheckRequestOptions } from "./evaluation/object-evaluation.ts";
import type { RefusedPolicy } from "./evaluation/plugins.ts";
import { normalizeManifestObjects } from "./evaluation/requests.ts";

/** Lists what is probably a mistake: objects that occur twice, and objects of --old without a manifest. */
export const describeDuplicateOrLostManifests = (
  manifests: readonly Manifest[],
  before: readonly Manifest[],
  kinds: KindIndex,
  requestOptions: Omit<CheckRequestOptions, "operation">,
): string[] => {
  const readNamed = (all: readonly Manifest[]) =>
    normalizeManifestObjects(all, kinds, requestOptions).filter(({ object }) => object.metadata?.name !== undefined);
  const first = new Map<string, Manifest>();
  const repeated: string[] = [];
  for (const { key, manifest, object } of readNamed(manifests)) {
    const earlier = first.get(key);
    if (earlier === undefined) first.set(key, manifest);
    // Two builds, such as overlays, may have the same object: they are alternatives.
    else if (earlier.build === manifest.build)
      repeated.push(
        `${formatName(object)} is in ${formatPlace(earlier)} already; in ${formatPlace(manifest)} it counts as an update of that`,
      );
  }
  const lost = readNamed(before)
    .filter(({ key }) => !first.has(key))
    .map(
      ({ manifest, object }) =>
        `--old ${formatPlace(manifest)} ${formatName(object)} is ignored, because it is not among the manifests`,
    );
  return [...limitSentences(repeated), ...limitSentences(lost)];
};

/** Says which files of folders aren't read as manifests, and why. */
export const describeLeftOut = (
  {
    filesWithoutManifest,
    chartsAndKustomizations: { charts, kustomizations },
  }: Pick<ManifestInput, "filesWithoutManifest" | "chartsAndKustomizations">,
  isBuilt: boolean,
): string[] => {
  const describe = (kind: "kustomization" | "chart", folders: readonly string[], left: string) => {
    const [folder] = folders;
    if (folder === undefined || isBuilt) return [];
    const [what, them] = folders.length === 1 ? [`is a ${kind}`, "it"] : [`are ${kind}s`, "them"];
    return [
      `${formatNames(new Set(folders))} ${what}, ${left}; --build checks ${them}, or ${formatBuildCommand(kind, folder)} | postern check -`,
    ];
  };
  const files = new Set(filesWithoutManifest);
  return [
    ...describe(
      "kustomization",
      kustomizations.map(({ folder }) => folder),
      "whose patches are left out",
    ),
    ...describe("chart", charts, "and left out"),
    ...(files.size > 0
      ? [
          `${formatNames(files)} ${files.size === 1 ? "holds" : "hold"} no manifest, and ${files.size === 1 ? "is" : "are"} left out`,
        ]
      : []),
  ];
};

/** Names files that a program reads, such as a KubeletConfiguration, and that are no objects of a cluster. */
export const describeProgramFiles = (manifests: readonly Manifest[]): string[] => {
  if (manifests.length === 0) return [];
  const kinds = formatNames(new Set(manifests.map(({ object }) => String(object.kind))));
  const files = formatNames(new Set(manifests.map(({ source }) => toSourceName(source.name))));
  const [has, it, is] =
    manifests.length === 1 ? ["has", "it is no object", "is"] : ["have", "they are no objects", "are"];
  return [`${kinds} in ${files} ${has} no metadata.name, so ${it} of a cluster, and ${is} left out`];
};

export const describeMissingNamespaces = (names: ReadonlySet<string>): string[] => {
  if (names.size === 0) return [];
  const isOne = names.size === 1;
  return [
    `${isOne ? "namespace" : "namespaces"} ${formatNames(names)} ${isOne ? "is" : "are"} neither in --state nor among the manifests`,
  ];
};

/** Says how many policies of each kind are not evaluated because of their plugin. */
export const describePoliciesNotEvaluated = (policies: readonly KubernetesObject[], why: string): string[] => {
  const counts = [...Map.groupBy(policies, ({ kind }) => kind)].map(
    ([kind = "", { length }]) => `${length} ${length === 1 ? kind : kind.replace(/y$/, "ies")}`,
  );
  const are = policies.length === 1 ? "is" : "are";
  return counts.length === 0 ? [] : [`${counts.join(" and ")} ${are} not evaluated, because ${why}`];
};

/** Names policies and bindings that can't be evaluated, and policies that no binding names. */
export const describeIdlePolicies = (
  { refused, unbound }: { refused: readonly RefusedPolicy[]; unbound: readonly KubernetesObject[] },
  findManifest: (object: KubernetesObject) => Manifest | undefined = () => undefined,
): string[] => {
  const format = (object: KubernetesObject, path: FieldPath) => {
    const manifest = findManifest(object);
    const name = `${object.kind} ${toMap(object.metadata).name}`;
    if (manifest === undefined) return name;
    const { line } = findPosition(manifest, path);
    return `${name} in ${formatPlace({ ...manifest, line })}`;
  };
  return [
    ...limitSentences(
      refused.map(({ object, path, reason }) => `${format(object, path)} is not evaluated, because ${reason}`),
    ),
    ...limitSentences(unbound.map((object) => `${format(object, [])} has no effect, because no binding names it`)),
  ];
};

/** Sums up what a check assumes of the cluster. */
export const describeAssumptions = (assumptions: readonly Assumption[]): string[] => {
  const named = assumptions.filter(({ name }) => name !== undefined);
  const isNamespace = ({ resource }: Assumption) => resource === "namespaces";
  const namespaces = new Set(named.filter(isNamespace).map(({ name = "" }) => name));
  const objects = new Set(named.filter((one) => !isNamespace(one)).map(formatAssumedObject));
  // The part about assumed namespaces says already that they have no LimitRanges and ResourceQuotas.
  const lists = assumptions.filter(
    ({ resource, namespace = "", name }) =>
      name === undefined && !(/^(limitranges|resourcequotas)$/.test(resource) && namespaces.has(namespace)),
  );
  const exist = ({ size }: ReadonlySet<string>) => (size === 1 ? "exists" : "exist");
  const parts = [
    ...(namespaces.size > 0
      ? [
          `${namespaces.size === 1 ? "namespace" : "namespaces"} ${formatNames(namespaces)} ${exist(namespaces)}, without limits, quotas or Pod Security labels`,
        ]
      : []),
    ...(objects.size > 0 ? [`${formatNames(objects)} ${exist(objects)}`] : []),
    ...(lists.length > 0
      ? [`only the ${formatNames(new Set(lists.map(({ resource }) => resource)))} of the manifests exist`]
      : []),
  ];
  return parts.length === 0 ? [] : [`Assumed of the cluster: ${parts.join("; ")} (give --state or --live)`];
};

/** Says that objects aren't validated, and what would change that. */
export const describeMissingKubernetes = (): string =>
  `API validation isn't evaluated, because Kubernetes' own handlers aren't here; ${
    isCheckout ? "npm run kubernetes builds them" : `${formatPage("start/project.md")} says how to add them`
  }`;

/** Names kinds whose objects aren't validated, for instance because no CustomResourceDefinition defines them. */
export const describeUnknownValidation = (kinds: ReadonlySet<string>): string[] =>
  kinds.size === 0
    ? []
    : [`API validation of ${formatNames(kinds)} isn't evaluated; an API server may refuse what check allows`];

const formatNames = (names: ReadonlySet<string>): string => {
  const [all, more] = [[...names].sort(), names.size - maxRemarks];
  if (more > 0) return `${all.slice(0, maxRemarks).join(", ")} and ${more} more`;
  return [all.slice(0, -1).join(", "), ...all.slice(-1)].filter((part) => part !== "").join(" and ");
};

/** The most remarks of one kind in a report: a second overlay repeats every object of the first one. */
const maxRemarks = 5;

const limitSentences = (sentences: readonly string[]): string[] =>
  sentences.length <= maxRemarks
    ? [...sentences]
    : [...sentences.slice(0, maxRemarks), `… and ${sentences.length - maxRemarks} more like these`];

const formatName = ({ kind, metadata }: KubernetesObject) =>
  `${kind} ${metadata?.namespace ? `${metadata.namespace}/` : ""}${metadata?.name}`;

const formatPlace = ({ source, line }: Manifest) => `${toSourceName(source.name)}:${line}`;
