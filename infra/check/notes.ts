import { toMap } from "#lib/json.ts";
import type { KindIndex } from "../apiserver/kinds/kinds.ts";
import { type Manifest, toSourceName } from "../manifests/manifests.ts";
import type { CheckRequestOptions } from "./evaluation/object-evaluation.ts";
import { normalizeManifestObjects } from "./evaluation/requests.ts";

/** Lists what is probably a mistake: objects that occur twice, and objects of --old without a manifest. */
export const describeDuplicateOrLostManifests = (
  manifests: readonly Manifest[],
  before: readonly Manifest[],
  kinds: KindIndex,
  asking: Omit<CheckRequestOptions, "operation">,
): string[] => {
  const readNamed = (all: readonly Manifest[]) =>
    normalizeManifestObjects(all, kinds, asking).filter(({ object }) => object.metadata?.name !== undefined);
  const first = new Map<string, Manifest>();
  const again: string[] = [];
  for (const { key, manifest } of readNamed(manifests)) {
    const earlier = first.get(key);
    if (earlier === undefined) first.set(key, manifest);
    else
      again.push(
        `${formatName(manifest)} is in ${formatPlace(earlier)} already; in ${formatPlace(manifest)} it counts as an update of that`,
      );
  }
  const strange = readNamed(before)
    .filter(({ key }) => !first.has(key))
    .map(
      ({ manifest }) =>
        `--old ${formatPlace(manifest)} ${formatName(manifest)} is ignored, because it is not among the manifests`,
    );
  return [...limitSentences(again), ...limitSentences(strange)];
};

export const describeMissingNamespaces = (names: ReadonlySet<string>, isStateKnown: boolean): string[] => {
  if (names.size === 0) return [];
  const isOne = names.size === 1;
  const subject = `${isOne ? "namespace" : "namespaces"} ${formatNames(names)}`;
  if (isStateKnown) return [`${subject} ${isOne ? "is" : "are"} neither in --state nor among the manifests`];
  return [
    `${subject} ${isOne ? "isn't" : "aren't"} among the manifests; ${
      isOne
        ? "it is treated as existing, without labels of its"
        : "they are treated as existing, without labels of their"
    } own`,
  ];
};

/** Names kinds of which check knows neither defaults nor validation. */
export const describeUnknownValidation = (kinds: ReadonlySet<string>): string[] =>
  kinds.size === 0
    ? []
    : [
        `defaults and API validation of ${formatNames(kinds)} aren't known here; an API server may refuse what check allows`,
      ];

const formatNames = (names: ReadonlySet<string>): string => {
  const [all, more] = [[...names].sort(), names.size - most];
  return more > 0 ? `${all.slice(0, most).join(", ")} and ${more} more` : all.join(", ");
};

/** The most remarks of one kind in a report: a second overlay repeats every object of the first one. */
const most = 5;

const limitSentences = (sentences: readonly string[]): string[] =>
  sentences.length <= most
    ? [...sentences]
    : [...sentences.slice(0, most), `… and ${sentences.length - most} more like these`];

const formatName = ({ object: { kind, metadata } }: Manifest) => `${kind} ${toMap(metadata).name}`;

const formatPlace = ({ source, line }: Manifest) => `${toSourceName(source.name)}:${line}`;
