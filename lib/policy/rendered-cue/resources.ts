import { escapeJsonPointerStep, unescapeJsonPointerStep } from "../../json.ts";
import { requireFractionBelowOne, templateOversellFactors } from "../overriders/resources.ts";
import type { OverrideTemplate } from "../types.ts";
import { buildExactCueFactorPattern, formatDecimal, renderAmountList, renderCueAmountDefinition } from "./amounts.ts";
import {
  podScriptCueInputs,
  podSpecCueDefinition,
  renderAddMissingMapOperation,
  renderCueList,
  renderCueLiteral,
  renderCuePatchesOutput,
  renderCuePatchOperation,
  renderCuePath,
  renderCueScript,
  renderFirstContainerAsCue,
  renderPodTemplatePointerAsCue,
} from "./cue-text.ts";

const resourcesPath = ["containers", "0", "resources"];

/**
 * Renders the path of a resource in a patch, such as `limits/cpu` of the first container, as CUE. The resource's name
 * is escaped, so that nothing in it becomes code.
 */
const renderPath = (list: string, name: string) =>
  renderPodTemplatePointerAsCue(...resourcesPath, list, renderCueLiteral(escapeJsonPointerStep(name)).slice(1, -1));

const renderRemoval = (list: string, name: string) =>
  renderCuePatchOperation("remove", renderPath(list, name), undefined, `if ${renderCuePath(list, [name])} != _|_`);

/** Renders a template of resources as CUE. As in kinitiras, its names are steps of JSON pointers: `~1` is a slash. */
export const renderResourcesTemplateAsCue = ({ operation, resources = {} }: OverrideTemplate): string => {
  const lists = (["requests", "limits"] as const).filter((list) => Object.keys(resources[list] ?? {}).length > 0);
  const operations = lists.flatMap((list) => {
    const quantities = Object.entries(resources[list] ?? {}).map(
      ([name, quantity]) => [unescapeJsonPointerStep(name), quantity] as const,
    );
    if (operation === "remove") return quantities.map(([name]) => renderRemoval(list, name));
    const parent = renderAddMissingMapOperation(list, renderPodTemplatePointerAsCue(...resourcesPath, list));
    return [
      parent,
      ...quantities.map(([name, quantity]) =>
        renderCuePatchOperation("add", renderPath(list, name), renderCueLiteral(quantity)),
      ),
    ];
  });
  const parents =
    operation === "remove" || lists.length === 0
      ? []
      : [renderAddMissingMapOperation("resources", renderPodTemplatePointerAsCue(...resourcesPath))];
  return renderCueScript(podScriptCueInputs, [
    podSpecCueDefinition,
    renderFirstContainerAsCue(...lists),
    renderCuePatchesOutput("container", renderCueList([...parents, ...operations])),
  ]);
};

/**
 * Renders a template as CUE that sets requests to shares of the limits (a limit multiplied by a factor), so that nodes
 * are oversold, or that removes the requests. In the CUE, `shares` has the operations that set the requests, `asked`
 * the present CPU request if there is one, and `isIdle` is true if that request is "0".
 */
export const renderOversellTemplateAsCue = ({ operation, resourcesOversell = {} }: OverrideTemplate): string => {
  const factors = templateOversellFactors.filter(({ factor }) => (resourcesOversell[factor] ?? "") !== "");
  if (operation === "remove") {
    const removals = renderCueList(factors.map(({ name }) => renderRemoval("requests", name)));
    return renderCueScript(podScriptCueInputs, [
      podSpecCueDefinition,
      renderFirstContainerAsCue("requests"),
      renderCuePatchesOutput("container", removals),
    ]);
  }

  const multiplied = factors.map(({ factor, name }) => {
    return { name, field: factor.replace("Factor", ""), times: formatFactor(resourcesOversell[factor]) };
  });
  // Matches the limits that CUE multiplies by each factor (such as 0.25) without rounding. The CUE fails for others.
  const exactLimit = buildExactCueFactorPattern(Math.max(...multiplied.map(({ times }) => times.length - "0.".length)));
  // As in kinitiras, a disk limit of 0 sets no request.
  const operations = multiplied.map(({ name, field, times }) =>
    renderCuePatchOperation(
      "add",
      renderPath("requests", name),
      renderMultipliedLimit(field, times),
      `for limit in ${field}${field === "disk" ? " if limit != 0" : ""}`,
    ),
  );
  const parts = [
    podSpecCueDefinition,
    renderFirstContainerAsCue("limits", "requests"),
    `// the limits that exist\n${multiplied.map(({ name, field }) => `${field}: ${renderAmountAt("limits", name)}`).join("\n")}`,
    // renderMultipliedLimit uses `isIdle` for the CPU, which is always the first of the factors.
    multiplied[0]?.field === "cpu" &&
      `// a request of no CPU stays as it is\nasked: [if ${cpuRequest} != _|_ {${cpuRequest}}]\nisIdle: list.Contains(asked, "0")`,
    `shares: ${renderCueList(operations)}`,
    renderCuePatchesOutput(
      "container",
      `[if len(shares) > 0 ${renderAddMissingMapOperation("requests", renderPodTemplatePointerAsCue(...resourcesPath, "requests"))}] + shares`,
    ),
    renderCueAmountDefinition(exactLimit),
  ];
  return renderCueScript(
    podScriptCueInputs,
    parts.filter((part) => part !== false),
  );
};

const cpuRequest = renderCuePath("requests", ["cpu"]);

/** Returns CUE for a list of one amount, or none if the resource is absent. `[0]` fails if its value is no quantity. */
const renderAmountAt = (resourceMap: string, name: string): string => {
  const place = renderCuePath(resourceMap, [name]);
  return `[if ${place} != _|_ if ${place} != null {${renderAmountList(place)}[0]}]`;
};

/**
 * Returns CUE for a new request: a limit multiplied by a factor, in thousandths of a CPU or whole units of other
 * resources, halves rounded away from zero. A present CPU request "0" stays 0: the CUE field `isIdle` is true. For the
 * CPU and the factor 0.5, returns `"\\([if isIdle {0}, math.Round(limit * 1000 * 0.5)][0])m"`; the `[0]` takes the
 * first element: 0 if `isIdle` is true, else the product.
 */
const renderMultipliedLimit = (field: string, times: string) =>
  field === "cpu"
    ? `"\\(${`[if isIdle {0}, math.Round(limit * 1000 * ${times})][0]`})m"`
    : `"\\(math.Round(limit * ${times}))"`;

const formatFactor = (written: unknown): string => formatDecimal(requireFractionBelowOne(written, "factor")) ?? "";
