import { rule } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import { listed } from "../parity/rule-server.ts";

/** Mutators that a pod of one namespace meets, one after the other or as a group. */
export interface Chain {
  /** Of the namespace, and of the group. */
  name: string;
  together: boolean;
  mutators: CatalogueRule[];
}

/** A label of pods for which none is called. */
export const settled = "bench.postern.dev/settled";

const markOf = (index: number) => `bench.postern.dev/mutator-${index}`;

/** As small as a rule gets: it leaves a mark of its own, and isn't called where that is. */
const mutator = (name: string, mark: string): CatalogueRule =>
  listed(
    name,
    rule({
      summary: "Leaves a mark on a pod.",
      match: [{ apiGroups: [""], apiVersions: ["v1"], resources: ["pods"], operations: ["CREATE"] }],
      matchConditions: {
        "is-unmarked": `!("${settled}" in object.metadata.labels) && !("${mark}" in object.metadata.annotations)`,
      },
      mutate({ metadata }) {
        if (metadata) metadata.annotations = { ...metadata.annotations, [mark]: "yes" };
      },
    }),
  );

const chain = (name: string, length: number, together: boolean): Chain => {
  const numbered = (index: number) => `${name}-${String(index).padStart(2, "0")}`;
  const mutators = Array.from({ length }, (_, index) => mutator(numbered(index), markOf(index)));
  return { name, together, mutators };
};

export const chains: Chain[] = [
  ...[1, 10, 30].map((length) => chain(`chain-${length}`, length, false)),
  ...[10, 30].map((length) => chain(`group-${length}`, length, true)),
];

/** How many have left their mark. */
export const marksOn = (annotations: Record<string, string> = {}): number =>
  chains[2]?.mutators.filter((_, index) => markOf(index) in annotations).length ?? 0;
