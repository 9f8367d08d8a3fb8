import { lookUp } from "../../json.ts";
import { places, required } from "../overriders/affinity.ts";
import type { OverrideTemplate } from "../types.ts";
import {
  below,
  inputs,
  insertion,
  listed,
  listOrEmpty,
  literals,
  made,
  nullable,
  operation,
  patchesIf,
  podSpec,
  script,
} from "./cue-text.ts";

const lists = places.map(({ parents, key }) => {
  const steps = [...parents, key];
  const kind = steps.includes(required) ? "Required" : "Preferred";
  return { name: `${parents[1]?.replace("Affinity", "")}${kind}`, steps };
});

/** A map that contains lists: its field name, its path, and the field name of the map that contains it. */
interface Parent {
  name: string;
  steps: string[];
  within: string;
}

interface List extends Parent {
  terms: unknown[];
}

export const renderedAffinity = ({ operation: act, affinity }: OverrideTemplate): string => {
  const given = lists.flatMap(({ name, steps }): List[] => {
    const terms = lookUp({ affinity }, steps)?.value;
    return Array.isArray(terms) && (terms.length > 0 || act === "remove")
      ? [{ name, steps, terms, within: nameOf(steps.at(-2)) }]
      : [];
  });
  const parents = [
    ...new Map(given.flatMap(({ steps }) => parentsOf(steps)).map((parent) => [parent.name, parent])).values(),
  ];
  const present = parents.map(({ name, steps, within }) => nullable(name, `${within}.${steps.at(-1)}`, "{...}"));
  const parts = act === "remove" ? removal(given, parents) : setting(given, parents, act === "add");
  return script(inputs, [podSpec, present.join("\n"), ...parts]);
};

const parentsOf = (steps: readonly string[]): Parent[] =>
  steps.slice(0, -1).map((step, index) => {
    return { name: nameOf(step), steps: steps.slice(0, index + 1), within: nameOf(steps[index - 1]) };
  });

/** Returns the field name of a map. Only one map holds required terms, so "required" is unique. */
const nameOf = (step = "podSpec") => (step === required ? "required" : step);

const setting = (given: List[], parents: Parent[], adds: boolean) => {
  const existing = given.map(({ name, steps, within }) => listOrEmpty(name, `${within}.${steps.at(-1)}`));
  const operations = given.flatMap(({ name, steps, terms }) => {
    const [path, wanted] = [below(...steps), `${name}Wanted`];
    if (!adds) return [operation("add", path, wanted)];
    return [operation("add", path, wanted, `if len(${name}) == 0`), insertion(path, name, terms, wanted)];
  });
  return [
    adds ? existing.join("\n") : "",
    given.map(({ name, terms }) => `${name}Wanted: ${literals(terms)}`).join("\n"),
    patchesIf("podSpec", listed([...parents.map(({ name, steps }) => made(name, below(...steps))), ...operations])),
  ];
};

const removal = (given: List[], parents: Parent[]) => {
  const maps = [{ name: "podSpec", steps: [] as string[], within: "" }, ...parents].reverse();
  const gone = maps.map(({ name }) => {
    const isIn = ({ within }: Parent) => within === name;
    const ofLists = given.filter(isIn).map(({ steps }) => `if ${name}.${steps.at(-1)} != _|_ {"${steps.at(-1)}"}`);
    const ofMaps = parents
      .filter(isIn)
      .map(({ name: map, steps }) => `if len(${map}Gone) > 0 if len(${map}Gone) == len(${map}) {"${steps.at(-1)}"}`);
    return `${name}Gone: ${listed([...ofLists, ...ofMaps])}`;
  });
  const operations = maps.map(({ name, steps }) =>
    operation("remove", below(...steps, "\\(key)"), undefined, `for key in ${name}Gone`),
  );
  return [`// a map in which nothing is left goes, too\n${gone.join("\n")}`, patchesIf("podSpec", listed(operations))];
};
