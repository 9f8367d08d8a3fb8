import type { Match } from "#lib/rule.ts";
import type { Listed } from "../catalogue/registry.ts";
import type { Cluster, Group, Setup } from "../config/config.ts";
import { type Entry, entryOf, exemptConditions, literal, oneLine } from "./entry.ts";

/** A member where it is on. */
type On = { listed: Listed; entry: Entry; mode: Setup["mode"] };

/** What is on of a group in a cluster, as one entry; undefined where nothing is. */
export const entryTogether = ({ members }: Group, cluster: Cluster, harden: boolean): Entry | undefined => {
  const on = membersOn(members, cluster, harden);
  const entries = on.map(({ entry }) => entry);
  const [first] = entries;
  if (first === undefined) return undefined;
  const match = unique(entries.flatMap(({ match }) => match));
  const failurePolicy = on.find(({ mode }) => mode === "enforce")?.entry.failurePolicy ?? "Ignore";
  // Who only warns or tells the audit log doesn't bring an entry that fails closed to where the others would not.
  const [one, ...others] = entries.filter((entry) => entry.failurePolicy === failurePolicy);
  const namespaces = one?.exempt.namespaces?.filter((name) =>
    others.every(({ exempt }) => exempt.namespaces?.includes(name)),
  );
  const terms = entries.map((entry) => term(entry, match, namespaces));
  return {
    ...first,
    match,
    exempt: { ...(namespaces && { namespaces }), namespaceLabels: first.exempt.namespaceLabels },
    // Where one member is always concerned, there is nothing to ask.
    conditions: terms.includes("") ? {} : { "concerns-a-member": any(unique(terms)) },
    failurePolicy,
    // One that is recorded has some where the others have none.
    sideEffects: entries.find(({ sideEffects }) => sideEffects !== "None")?.sideEffects ?? "None",
    timeoutSeconds: Math.max(...entries.map(({ timeoutSeconds }) => timeoutSeconds)),
  };
};

/** What one member asks of a request; empty where that is nothing. */
const term = ({ match, exempt, conditions }: Entry, all: readonly Match[], exemptForAll: string[] = []): string => {
  const own = exempt.namespaces?.filter((one) => !exemptForAll.includes(one)) ?? [];
  const parts = [
    ...(unique(match).length === all.length ? [] : [any(unique(match).map(about))]),
    ...(own.length > 0 ? [`!(request.?namespace.orValue("") in ${literal(own)})`] : []),
    ...Object.values({ ...exemptConditions(exempt), ...conditions }),
  ];
  return parts.map(inParentheses).join(" && ");
};

/** A line break, for an expression may end with a comment. */
const inParentheses = (expression: string) => {
  const line = oneLine(expression);
  return line.includes("\n") || line.includes("//") ? `(${line}\n)` : `(${line})`;
};

/** Whether a request is one of these. */
const about = ({ operations, resources }: Match): string => {
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

/** Why these can't be one entry, in sentences that follow the group's name. */
export const disagreements = ({ members }: Group, cluster: Cluster, harden = false): string[] => {
  const on = membersOn(members, cluster, harden);
  const about: [string, On[], (one: On) => unknown][] = [
    ["failurePolicy", on.filter(({ mode }) => mode === "enforce"), ({ entry }) => entry.failurePolicy],
    ["matchPolicy", on, ({ entry }) => entry.matchPolicy],
    ["sideEffects", on, ({ listed }) => listed.rule.sideEffects ?? "None"],
    ["namespaceSelector", on, ({ entry }) => entry.namespaceSelector],
    ["objectSelector", on, ({ entry }) => entry.objectSelector],
    ["exempt.namespaceLabels", on, ({ entry }) => entry.exempt.namespaceLabels ?? {}],
    // Who is exempt because of it was not when the functions were built.
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

/** The API server converts an object to what one entry names: each member must be able to take what it sends. */
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

const membersOn = (members: Listed[], { rules }: Cluster, harden: boolean): On[] =>
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
