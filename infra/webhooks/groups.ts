import type { RequestMatch } from "#lib/rule.ts";
import type { CatalogueRule } from "../catalogue/registry.ts";
import type { ClusterConfig, RuleConfig, RuleGroup } from "../config/config.ts";
import { type Entry, entryOf, exemptConditions, literal, oneLine } from "./entry.ts";

type On = { listed: CatalogueRule; entry: Entry; mode: RuleConfig["mode"] };

export const entryTogether = ({ members }: RuleGroup, cluster: ClusterConfig, harden: boolean): Entry | undefined => {
  const on = membersOn(members, cluster, harden);
  const entries = on.map(({ entry }) => entry);
  const [first] = entries;
  if (first === undefined) return undefined;
  const match = unique(entries.flatMap(({ match }) => match));
  const failurePolicy = on.find(({ mode }) => mode === "enforce")?.entry.failurePolicy ?? "Ignore";
  // A member in mode warn or audit must not make the entry fail closed in namespaces that the others exempt.
  const [one, ...others] = entries.filter((entry) => entry.failurePolicy === failurePolicy);
  const namespaces = one?.exempt.namespaces?.filter((name) =>
    others.every(({ exempt }) => exempt.namespaces?.includes(name)),
  );
  const terms = entries.map((entry) => term(entry, match, namespaces));
  return {
    ...first,
    match,
    exempt: { ...(namespaces && { namespaces }), namespaceLabels: first.exempt.namespaceLabels },
    // If one member takes every request, the entry needs no condition.
    conditions: terms.includes("") ? {} : { "concerns-a-member": any(unique(terms)) },
    failurePolicy,
    // A recorded member has side effects even if the others have none.
    sideEffects: entries.find(({ sideEffects }) => sideEffects !== "None")?.sideEffects ?? "None",
    timeoutSeconds: Math.max(...entries.map(({ timeoutSeconds }) => timeoutSeconds)),
  };
};

const term = (
  { match, exempt, conditions }: Entry,
  all: readonly RequestMatch[],
  exemptForAll: string[] = [],
): string => {
  const own = exempt.namespaces?.filter((one) => !exemptForAll.includes(one)) ?? [];
  const parts = [
    ...(unique(match).length === all.length ? [] : [any(unique(match).map(about))]),
    ...(own.length > 0 ? [`!(request.?namespace.orValue("") in ${literal(own)})`] : []),
    ...Object.values({ ...exemptConditions(exempt), ...conditions }),
  ];
  return parts.map(inParentheses).join(" && ");
};

/** Adds a line break before the parenthesis, because an expression may end with a comment. */
const inParentheses = (expression: string) => {
  const line = oneLine(expression);
  return line.includes("\n") || line.includes("//") ? `(${line}\n)` : `(${line})`;
};

const about = ({ operations, resources }: RequestMatch): string => {
  const paths = resources.map((path) => (path.includes("/") ? path : `${path}/`));
  const asked = [
    ...(operations.includes("*") ? [] : [`request.operation in ${literal(operations)}`]),
    ...(paths.some((path) => path.includes("*"))
      ? []
      : [`request.resource.resource + "/" + request.?subResource.orValue("") in ${literal(paths)}`]),
  ];
  return asked.join(" && ") || "true";
};

const any = (terms: string[]) => (terms.length === 1 ? String(terms[0]) : terms.map(inParentheses).join(" || "));

/** Returns why the members can't share an entry, in sentences that continue the group's name. */
export const disagreements = ({ members }: RuleGroup, cluster: ClusterConfig, harden = false): string[] => {
  const on = membersOn(members, cluster, harden);
  const about: [string, On[], (one: On) => unknown][] = [
    ["failurePolicy", on.filter(({ mode }) => mode === "enforce"), ({ entry }) => entry.failurePolicy],
    ["matchPolicy", on, ({ entry }) => entry.matchPolicy],
    ["sideEffects", on, ({ listed }) => listed.rule.sideEffects ?? "None"],
    ["namespaceSelector", on, ({ entry }) => entry.namespaceSelector],
    ["objectSelector", on, ({ entry }) => entry.objectSelector],
    ["exempt.namespaceLabels", on, ({ entry }) => entry.exempt.namespaceLabels ?? {}],
    // The functions don't know the namespaces that are exempt only because of hardening.
    [
      "exempt.namespaces where it fails closed",
      harden ? on.filter(failsClosed) : [],
      ({ entry }) => entry.exempt.namespaces,
    ],
  ];
  return [
    ...about.flatMap(([what, which, of]) => {
      const [first, ...others] = which.map((one) => ({ name: one.listed.name, value: told(of(one)) }));
      const other = others.find(({ value }) => value !== first?.value);
      if (first === undefined || other === undefined) return [];
      return [`must agree in ${what}: ${first.name} has ${first.value}, ${other.name} has ${other.value}`];
    }),
    ...versions(on),
  ];
};

const failsClosed = ({ entry }: On) => entry.failurePolicy === "Fail";

/** The API server converts objects to the version that an entry names, so all members must match the same versions. */
const versions = (on: On[]): string[] => {
  const named = on.flatMap(({ listed: { name }, entry }) =>
    entry.match.flatMap(({ apiGroups, apiVersions, resources }) =>
      resources.map((path) => ({ name, resource: path.split("/")[0], as: told([apiGroups, apiVersions]) })),
    ),
  );
  for (const one of named) {
    const other = named.find(
      ({ resource, as }) => as !== one.as && (resource === one.resource || resource === "*" || one.resource === "*"),
    );
    if (other)
      return [
        `must match ${one.resource} in the same versions: ${one.name} has ${one.as}, ${other.name} has ${other.as}`,
      ];
  }
  return [];
};

const membersOn = (members: CatalogueRule[], { rules }: ClusterConfig, harden: boolean): On[] =>
  members.flatMap((listed) => {
    const setup = rules.get(listed.name);
    if (setup === undefined || setup.mode === "off") return [];
    return [{ listed, mode: setup.mode, entry: entryOf(listed, "mutate", setup, harden) }];
  });

const told = (value: unknown) => JSON.stringify(value) ?? "none";

const unique = <T>(values: readonly T[]): T[] => {
  const seen = new Map(values.map((value) => [JSON.stringify(value), value]));
  return [...seen.values()];
};
