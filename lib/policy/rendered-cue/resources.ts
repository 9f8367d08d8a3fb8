import { escapeStep, unescapeStep } from "../../json.ts";
import { factors, shareOf } from "../overriders/resources.ts";
import type { OverrideTemplate } from "../types.ts";
import { amountDefinition, amountOf, decimalText, multipliable } from "./amounts.ts";
import {
  below,
  firstContainer,
  inputs,
  listed,
  literal,
  made,
  operation,
  patchesIf,
  podSpec,
  script,
  selector,
} from "./cue-text.ts";

const resourcesPath = ["containers", "0", "resources"];

/** Writes the resource's name as JSON without the quotes, so that nothing in it is code. */
const pathOf = (list: string, name: string) => below(...resourcesPath, list, literal(escapeStep(name)).slice(1, -1));

const removal = (list: string, name: string) =>
  operation("remove", pathOf(list, name), undefined, `if ${selector(list, [name])} != _|_`);

export const renderedResources = ({ operation: act, resources = {} }: OverrideTemplate): string => {
  const lists = (["requests", "limits"] as const).filter((list) => Object.keys(resources[list] ?? {}).length > 0);
  const operations = lists.flatMap((list) => {
    const given = Object.entries(resources[list] ?? {}).map(
      ([name, quantity]) => [unescapeStep(name), quantity] as const,
    );
    if (act === "remove") return given.map(([name]) => removal(list, name));
    const parent = made(list, below(...resourcesPath, list));
    return [parent, ...given.map(([name, quantity]) => operation("add", pathOf(list, name), literal(quantity)))];
  });
  const parents = act === "remove" || lists.length === 0 ? [] : [made("resources", below(...resourcesPath))];
  return script(inputs, [
    podSpec,
    firstContainer(...lists),
    patchesIf("container", listed([...parents, ...operations])),
  ]);
};

export const renderedOversell = ({ operation: act, resourcesOversell = {} }: OverrideTemplate): string => {
  const given = factors.filter(({ factor }) => (resourcesOversell[factor] ?? "") !== "");
  if (act === "remove") {
    const removals = listed(given.map(({ name }) => removal("requests", name)));
    return script(inputs, [podSpec, firstContainer("requests"), patchesIf("container", removals)]);
  }

  const shared = given.map(({ factor, name }) => {
    return { name, field: factor.replace("Factor", ""), times: factorOf(resourcesOversell[factor]) };
  });
  const digits = Math.max(...shared.map(({ times }) => times.length - "0.".length));
  const shares = shared.map(({ name, field, times }) =>
    operation(
      "add",
      pathOf("requests", name),
      worth(field, times),
      `for limit in ${field}${field === "disk" ? " if limit != 0" : ""}`,
    ),
  );
  const parts = [
    podSpec,
    firstContainer("limits", "requests"),
    `// the limits, of those that there are\n${shared.map(({ name, field }) => `${field}: ${amountAt("limits", name)}`).join("\n")}`,
    shared[0]?.field === "cpu" &&
      `// whoever asks for no CPU at all goes on doing so\nasked: [if ${cpu} != _|_ {${cpu}}]\nisIdle: list.Contains(asked, "0")`,
    `shares: ${listed(shares)}`,
    patchesIf("container", `[if len(shares) > 0 ${made("requests", below(...resourcesPath, "requests"))}] + shares`),
    amountDefinition(multipliable(digits)),
  ];
  return script(
    inputs,
    parts.filter((part) => part !== false),
  );
};

const cpu = selector("requests", ["cpu"]);

const amountAt = (list: string, name: string): string => {
  const place = selector(list, [name]);
  return `[if ${place} != _|_ if ${place} != null {${amountOf(place)}[0]}]`;
};

/** Returns CUE for a share in thousandths of a CPU or whole units, rounded half away from zero. */
const worth = (field: string, times: string) =>
  field === "cpu"
    ? `"\\(${`[if isIdle {0}, math.Round(limit * 1000 * ${times})][0]`})m"`
    : `"\\(math.Round(limit * ${times}))"`;

const factorOf = (written: unknown): string => decimalText(shareOf(written, "factor")) ?? "";
