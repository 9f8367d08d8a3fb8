import { rule } from "#lib/rule.ts";
import type { CatalogueRule } from "../../../infra/catalogue/registry.ts";
import { buildTestRule } from "../../parity/rule-server.ts";

/**
 * Mutating rules that the API server calls for the pods of one namespace, each by its own webhook or all as a group.
 */
export interface BenchMutatorSet {
  /** The name of the namespace, and of the group if the rules are one. */
  name: string;
  /** True if one webhook calls all rules as a group. */
  isGroup: boolean;
  mutators: CatalogueRule[];
}

/** A label of pods for which none of the benchmark's mutating rules is called. */
export const skipBenchMutatorsLabel = "bench.postern.dev/settled";

/** Returns the annotation that a mutator adds. */
const getMark = (index: number) => `bench.postern.dev/mutator-${index}`;

/** Creates a minimal rule. It adds the annotation `mark`, and is not called for pods with this annotation. */
const createMutator = (name: string, mark: string): CatalogueRule =>
  buildTestRule(
    name,
    rule({
      summary: "Adds an annotation to a pod.",
      match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
      matchConditions: {
        "is-unmarked": `!("${skipBenchMutatorsLabel}" in object.metadata.labels) && !("${mark}" in object.metadata.annotations)`,
      },
      mutate({ metadata }) {
        if (metadata) metadata.annotations = { ...metadata.annotations, [mark]: "yes" };
      },
    }),
  );

/** Creates rules that are called by one webhook as a group or, if `isGroup` is false, each by its own webhook. */
const createMutatorSet = (name: string, length: number, { isGroup }: { isGroup: boolean }): BenchMutatorSet => {
  const formatName = (index: number) => `${name}-${String(index).padStart(2, "0")}`;
  const mutators = Array.from({ length }, (_, index) => createMutator(formatName(index), getMark(index)));
  return { name, isGroup, mutators };
};

export const benchMutatorSets: BenchMutatorSet[] = [
  ...[1, 10, 30].map((length) => createMutatorSet(`chain-${length}`, length, { isGroup: false })),
  ...[10, 30].map((length) => createMutatorSet(`group-${length}`, length, { isGroup: true })),
];

/** Returns how many of the bench's mutators have added their annotation to a pod. */
export const countBenchMutatorAnnotations = (annotations: Record<string, string> = {}): number =>
  // The set with index 2 has the most mutators; those of the other sets add the same annotations.
  benchMutatorSets[2]?.mutators.filter((_, index) => getMark(index) in annotations).length ?? 0;
