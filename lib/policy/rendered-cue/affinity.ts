import { lookUp } from "../../json.ts";
import { affinityTermListPaths, requiredTermsField } from "../overriders/affinity.ts";
import type { OverrideTemplate } from "../types.ts";
import {
  podScriptCueInputs,
  podSpecCueDefinition,
  renderAddMissingMapOperation,
  renderCueList,
  renderCuePatchesOutput,
  renderCuePatchOperation,
  renderCueScript,
  renderListOrEmptyAsCue,
  renderNullableCueField,
  renderPodTemplatePointerAsCue,
  renderPrependMissingAsCue,
  renderValuesAsCueList,
} from "./cue-text.ts";

/** The lists of terms and their names in CUE, such as `nodeRequired`. */
const namedLists = affinityTermListPaths.map(({ parents, key }) => {
  const steps = [...parents, key];
  const kind = steps.includes(requiredTermsField) ? "Required" : "Preferred";
  return { name: `${parents[1]?.replace("Affinity", "")}${kind}`, steps };
});

/** A map on the path to a list of terms: its CUE field (`name`), its path, and the CUE field of the map around it. */
interface ParentMap {
  name: string;
  steps: string[];
  outer: string;
}

interface TermList extends ParentMap {
  terms: unknown[];
}

/** Renders a template of affinities as CUE. */
export const renderAffinityAsCue = ({ operation, affinity }: OverrideTemplate): string => {
  const termLists = namedLists.flatMap(({ name, steps }): TermList[] => {
    const terms = lookUp({ affinity }, steps)?.value;
    // `remove` deletes the whole list, so the template's list may be empty. The other operations need terms.
    return Array.isArray(terms) && (terms.length > 0 || operation === "remove")
      ? [{ name, steps, terms, outer: toFieldName(steps.at(-2)) }]
      : [];
  });
  const parents = [
    ...new Map(termLists.flatMap(({ steps }) => listParents(steps)).map((parent) => [parent.name, parent])).values(),
  ];
  // CUE fields for the pod's maps around the lists, such as `affinity: podSpec.affinity`; null if the pod lacks them.
  const presentParents = parents.map(({ name, steps, outer }) =>
    renderNullableCueField(name, `${outer}.${steps.at(-1)}`, "{...}"),
  );
  const keepsTerms = operation === "add";
  const parts =
    operation === "remove" ? renderRemoval(termLists, parents) : renderSetting(termLists, parents, keepsTerms);
  return renderCueScript(podScriptCueInputs, [podSpecCueDefinition, presentParents.join("\n"), ...parts]);
};

/** Lists the maps around the list of terms at a path, the outermost first. */
const listParents = (steps: readonly string[]): ParentMap[] =>
  steps.slice(0, -1).map((step, index) => {
    // The first map, `affinity`, has no step before it: it is in `podSpec`, the default of toFieldName.
    return { name: toFieldName(step), steps: steps.slice(0, index + 1), outer: toFieldName(steps[index - 1]) };
  });

/** Returns the CUE field for a step of a path. The default is the pod spec; the key of required terms is shortened. */
const toFieldName = (step = "podSpec") => (step === requiredTermsField ? "required" : step);

/**
 * Renders a template that puts missing terms before the present ones (`keepsTerms`), or else replaces whole lists.
 * The patch operation `add` sets a whole list, whether it is absent, empty or to replace.
 */
const renderSetting = (termLists: TermList[], parents: ParentMap[], keepsTerms: boolean) => {
  const existing = termLists.map(({ name, steps, outer }) => renderListOrEmptyAsCue(name, `${outer}.${steps.at(-1)}`));
  const operations = termLists.flatMap(({ name, steps, terms }) => {
    const path = renderPodTemplatePointerAsCue(...steps);
    const wanted = `${name}Wanted`;
    if (!keepsTerms) return [renderCuePatchOperation("add", path, wanted)];
    return [
      renderCuePatchOperation("add", path, wanted, `if len(${name}) == 0`),
      renderPrependMissingAsCue(path, name, terms, wanted),
    ];
  });
  return [
    keepsTerms ? existing.join("\n") : "",
    termLists.map(({ name, terms }) => `${name}Wanted: ${renderValuesAsCueList(terms)}`).join("\n"),
    renderCuePatchesOutput(
      "podSpec",
      renderCueList([
        ...parents.map(({ name, steps }) =>
          renderAddMissingMapOperation(name, renderPodTemplatePointerAsCue(...steps)),
        ),
        ...operations,
      ]),
    ),
  ];
};

/**
 * Renders the removal of the lists that the template names, and of maps that become empty. The CUE field `<map>Gone`
 * has the keys to remove from a map: those of such lists, if the pod has them (in CUE, `x != _|_`), and those of inner
 * maps that lose all their keys. For instance, with the names of fields shortened:
 *
 *     nodeAffinityGone: [
 *       if nodeAffinity.preferred != _|_ {"preferred"},
 *       if len(requiredGone) > 0 if len(requiredGone) == len(required) {"required"},
 *     ]
 */
const renderRemoval = (termLists: TermList[], parents: ParentMap[]) => {
  // The pod spec is the outermost map. Inner maps come first: when a map is removed, the paths in it no longer exist.
  const maps = [{ name: "podSpec", steps: [] as string[], outer: "" }, ...parents].reverse();
  const goneFields = maps.map(({ name }) => {
    // The lists and maps directly in this map; the last of a path's steps is the key there.
    const isInMap = ({ outer }: ParentMap) => outer === name;
    const goneLists = termLists
      .filter(isInMap)
      .map(({ steps }) => `if ${name}.${steps.at(-1)} != _|_ {"${steps.at(-1)}"}`);
    const goneMaps = parents
      .filter(isInMap)
      .map(({ name: map, steps }) => `if len(${map}Gone) > 0 if len(${map}Gone) == len(${map}) {"${steps.at(-1)}"}`);
    return `${name}Gone: ${renderCueList([...goneLists, ...goneMaps])}`;
  });
  const operations = maps.map(({ name, steps }) =>
    renderCuePatchOperation(
      "remove",
      renderPodTemplatePointerAsCue(...steps, "\\(key)"),
      undefined,
      `for key in ${name}Gone`,
    ),
  );
  return [
    `// a map that becomes empty is removed, too\n${goneFields.join("\n")}`,
    renderCuePatchesOutput("podSpec", renderCueList(operations)),
  ];
};
