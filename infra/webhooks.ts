import type { Operation } from "#lib/review.ts";
import { inPhase, type LabelSelector, type Match, type OfSettings, type Phase, type Rule } from "#lib/rule.ts";
import { Complaint } from "./complaint.ts";
import type { Cluster, Exempt, Setup } from "./config.ts";
import type { Listed } from "./registry.ts";

/** Where and how a cluster's entries call. */
export interface Registration {
  /** The configurations' name. */
  name: string;
  /** The address of a rule's endpoint, with the cluster's key in it. */
  address(rule: string, phase: Phase): string;
  /** PEM; only where the API server's own roots don't suffice. */
  ca?: string | undefined;
  /** Guards fail closed. */
  harden: boolean;
}

export interface Webhook {
  name: string;
  clientConfig: { url: string; caBundle?: string };
  rules: readonly Match[];
  failurePolicy: "Fail" | "Ignore";
  matchPolicy: "Equivalent" | "Exact";
  namespaceSelector?: LabelSelector;
  objectSelector?: LabelSelector;
  matchConditions?: { name: string; expression: string }[];
  sideEffects: "None" | "NoneOnDryRun";
  timeoutSeconds: number;
  reinvocationPolicy?: "IfNeeded";
  admissionReviewVersions: string[];
}

const defaultTimeout = 3;

/** Mutating calls are made one after the other, within the API server's own 34 s. */
const longestChain = 20;

/** Never behind an entry that fails closed, unless somebody wrote otherwise: the cluster could not heal itself. */
const vital = ["kube-system", "kube-node-lease"];

/** The two webhook configurations of a cluster, in the order of the compiled-in chain. */
export const configurations = (catalogue: Listed[], cluster: Cluster, registration: Registration) => {
  const entries = (phase: Phase) =>
    catalogue.flatMap((listed) => {
      const setup = cluster.rules.get(listed.name);
      const applies = setup !== undefined && setup.mode !== "off" && listed.phases.includes(phase);
      return applies ? [entry(listed, phase, setup, registration)] : [];
    });
  const mutating = entries("mutate");
  checkChain(mutating);
  return [
    configuration("MutatingWebhookConfiguration", registration.name, mutating),
    configuration("ValidatingWebhookConfiguration", registration.name, entries("validate")),
  ].filter(({ webhooks }) => webhooks.length > 0);
};

const configuration = (kind: string, name: string, webhooks: Webhook[]) => {
  const labels = { "app.kubernetes.io/managed-by": "postern" };
  return { apiVersion: "admissionregistration.k8s.io/v1", kind, metadata: { name, labels }, webhooks };
};

const entry = ({ name, rule }: Listed, phase: Phase, setup: Setup, { address, ca, harden }: Registration): Webhook => {
  const { settings, mode } = setup;
  const match = inPhase(rule.match, phase, settings) ?? [];
  if (match.length === 0) throw new Complaint(`functions/${name}/rule.ts matches nothing to ${phase}`);
  const exempt = exemptionsOf(name, match, setup, harden && rule.guards === true);
  const conditions = {
    ...exemptConditions(exempt),
    ...inPhase(rule.authorizedBy, phase, settings),
    ...inPhase(rule.matchConditions, phase, settings),
  };
  const namespaceSelector = both(selector(rule.namespaceSelector, settings), exemptSelector(exempt));
  const objectSelector = selector(rule.objectSelector, settings);
  return {
    name: `${name}.postern.dev`,
    clientConfig: { url: address(name, phase), ...(ca && { caBundle: Buffer.from(ca).toString("base64") }) },
    rules: match.map((one) => ({ scope: "*", ...one })),
    failurePolicy: mode === "enforce" ? policyOf(setup, harden && rule.guards === true) : "Ignore",
    matchPolicy: rule.matchPolicy ?? "Equivalent",
    ...(namespaceSelector && { namespaceSelector }),
    ...(objectSelector && { objectSelector }),
    ...(Object.keys(conditions).length > 0 && {
      matchConditions: Object.entries(conditions).map(([name, expression]) => ({
        name,
        expression: oneLine(expression),
      })),
    }),
    sideEffects: rule.sideEffects ?? "None",
    timeoutSeconds: timeoutOf(rule, setup),
    ...(phase === "mutate" && { reinvocationPolicy: "IfNeeded" as const }),
    admissionReviewVersions: ["v1", "v1beta1"],
  };
};

/** How long the API server waits for a rule, in seconds. */
export const timeoutOf = (rule: Rule, setup?: Setup) => setup?.timeoutSeconds ?? rule.timeoutSeconds ?? defaultTimeout;

const policyOf = ({ failurePolicy }: Setup, hardened: boolean) => failurePolicy ?? (hardened ? "Fail" : "Ignore");

const exemptionsOf = (name: string, match: readonly Match[], setup: Setup, hardened: boolean): Exempt => {
  const { exempt = {}, mode } = setup;
  if (exempt.namespaceLabels && Object.keys(exempt.namespaceLabels).length > 0 && match.some(judgesNamespaces))
    throw new Complaint(
      `rules.${name}.exempt.namespaceLabels would let whoever labels a namespace exempt it, since ${name} judges namespaces too; use namespaces, users or groups`,
    );
  const closed = mode === "enforce" && policyOf(setup, hardened) === "Fail";
  return closed && exempt.namespaces === undefined ? { ...exempt, namespaces: vital } : exempt;
};

const judgesNamespaces = ({ apiGroups, resources }: Match) =>
  overlap(apiGroups, [""]) && resources.some((resource) => ["namespaces", "*", "*/*"].includes(resource));

/** Selected by no label of the object itself, for its author could set them. */
const exemptSelector = ({ namespaces = [], namespaceLabels = {} }: Exempt): LabelSelector | undefined => {
  const matchExpressions = [
    ...(namespaces.length > 0
      ? [{ key: "kubernetes.io/metadata.name", operator: "NotIn" as const, values: namespaces }]
      : []),
    ...Object.entries(namespaceLabels).map(([key, value]) => ({ key, operator: "NotIn" as const, values: [value] })),
  ];
  return matchExpressions.length > 0 ? { matchExpressions } : undefined;
};

const exemptConditions = ({ users = [], groups = [] }: Exempt): Record<string, string> => {
  return {
    ...(users.length > 0 && { "user-is-not-exempt": `!(request.userInfo.?username.orValue("") in ${literal(users)})` }),
    ...(groups.length > 0 && {
      "groups-are-not-exempt": `!request.userInfo.?groups.orValue([]).exists(group, group in ${literal(groups)})`,
    }),
  };
};

/** CEL's escapes are JSON's but for what JSON leaves as it is. */
const literal = (texts: string[]) =>
  JSON.stringify(texts).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");

const both = (one: LabelSelector | undefined, other: LabelSelector | undefined): LabelSelector | undefined => {
  if (one === undefined || other === undefined) return one ?? other;
  const matchExpressions = [...(one.matchExpressions ?? []), ...(other.matchExpressions ?? [])];
  return { ...(one.matchLabels && { matchLabels: one.matchLabels }), matchExpressions };
};

/** A selector that selects everything is as good as none. */
const selector = (
  value: OfSettings<LabelSelector, object> | undefined,
  settings: object,
): LabelSelector | undefined => {
  const { matchLabels = {}, matchExpressions = [] } = (typeof value === "function" ? value(settings) : value) ?? {};
  const given = {
    ...(Object.keys(matchLabels).length > 0 && { matchLabels }),
    ...(matchExpressions.length > 0 && { matchExpressions }),
  };
  return Object.keys(given).length > 0 ? given : undefined;
};

/** Line breaks and indentation are the rule's layout, unless a comment or a long text depends on them. */
export const oneLine = (expression: string) =>
  /\/\/|"""|'''/.test(expression)
    ? expression
    : expression
        .replace(/\s*\n\s*(?=\.)/g, "")
        .replace(/\s*\n\s*/g, " ")
        .trim();

/** Refuses entries that one request could wait for longer than the API server waits. */
const checkChain = (webhooks: Webhook[]) => {
  const literals = (part: (match: Match) => readonly string[]) => [
    ...new Set(webhooks.flatMap(({ rules }) => rules.flatMap(part))),
  ];
  const names = literals(({ resources }) => resources.map((path) => path.split("/")[0] ?? ""));
  const subs = literals(({ resources }) => ["", ...resources.map((path) => path.split("/")[1] ?? "")]);
  const longest = { seconds: 0, rules: [] as string[], request: "" };
  for (const group of literals(({ apiGroups }) => apiGroups))
    for (const resource of names.flatMap((name) => subs.map((sub) => (sub === "" ? name : `${name}/${sub}`))))
      for (const operation of ["CREATE", "UPDATE", "DELETE", "CONNECT"] satisfies Operation[]) {
        const called = webhooks.filter(({ rules }) =>
          rules.some((match) => matches(match, group, resource, operation)),
        );
        const seconds = called.reduce((sum, { timeoutSeconds }) => sum + timeoutSeconds, 0);
        if (seconds <= longest.seconds) continue;
        const rules = called.map(({ name }) => name.replace(/\.postern\.dev$/, ""));
        Object.assign(longest, { seconds, rules, request: `${operation} of ${resource}` });
      }
  if (longest.seconds > longestChain)
    throw new Complaint(
      `a ${longest.request} could wait ${longest.seconds} s for ${longest.rules.join(", ")}, more than the ${longestChain} s that are safe; shorten one by timeoutSeconds in postern.yaml`,
    );
};

const overlap = (list: readonly string[], wanted: readonly string[]) =>
  list.includes("*") || wanted.some((one) => list.includes(one));

const matches = ({ apiGroups, resources, operations }: Match, group: string, path: string, operation: Operation) => {
  const [resource, sub = ""] = path.split("/");
  return (
    overlap(apiGroups, [group]) &&
    overlap(operations, [operation]) &&
    resources.some((entry) => {
      const [wanted, wantedSub = ""] = entry.split("/");
      return [resource, "*"].includes(wanted) && (wantedSub === "*" || wantedSub === sub);
    })
  );
};
