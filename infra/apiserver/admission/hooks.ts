import { isMap } from "#lib/json.ts";
import type { LabelSelector } from "#lib/objects/selection.ts";
import type { Match, Phase } from "#lib/rule.ts";
import { listFaults } from "./configurations.ts";

/** An entry of a webhook configuration, with what the API server fills in. */
export interface Hook {
  phase: Phase;
  /** The name of the configuration that it stands in. */
  configuration: string;
  name: string;
  /** What tells it from all others. */
  identity: string;
  rules: readonly Match[];
  failurePolicy: "Fail" | "Ignore";
  matchPolicy: "Equivalent" | "Exact";
  reinvocationPolicy: "Never" | "IfNeeded";
  namespaceSelector: LabelSelector;
  objectSelector: LabelSelector;
  matchConditions: readonly { name: string; expression: string }[];
  /** Absent only in what an API server stored long ago. */
  sideEffects?: string;
  timeoutSeconds: number;
  admissionReviewVersions: readonly string[];
  clientConfig: { url?: string; service?: object; caBundle?: string };
}

/** Hooks by phase, in the order of an API server, and what is wrong with the configurations, in sentences. */
export interface Hooks {
  mutating: Hook[];
  validating: Hook[];
  faults: string[];
}

const kinds: Record<string, Phase> = {
  MutatingWebhookConfiguration: "mutate",
  ValidatingWebhookConfiguration: "validate",
};

const isConfiguration = (manifest: unknown): boolean =>
  isMap(manifest) && typeof manifest.kind === "string" && Object.hasOwn(kinds, manifest.kind);

/** The hooks of configurations. One that an API server would not take has none, and its faults are said. */
export const hooksIn = (configurations: readonly unknown[]): Hooks => {
  const faults: string[] = [];
  const found: Record<Phase, Map<string, Hook[]>> = { mutate: new Map(), validate: new Map() };
  for (const [index, manifest] of configurations.entries()) {
    const phase = isConfiguration(manifest) ? kinds[String(Object(manifest).kind)] : undefined;
    if (phase === undefined) {
      faults.push(`configuration ${index + 1} is neither a ${Object.keys(kinds).join(" nor a ")}`);
      continue;
    }
    const configuration = manifest as Configuration;
    const title = `${configuration.kind} ${JSON.stringify(String(Object(configuration.metadata).name ?? ""))}`;
    const own = listFaults(configuration);
    if (own.length > 0) {
      for (const fault of own) faults.push(`${title}: ${fault}`);
      continue;
    }
    const { name } = configuration.metadata;
    if (found[phase].has(name)) faults.push(`${title} is there twice; the last one counts`);
    found[phase].set(name, hooksOf(configuration, phase));
  }
  return { mutating: inOrder(found.mutate), validating: inOrder(found.validate), faults };
};

/** Names have no characters in which the order of bytes is another. */
const inOrder = (found: Map<string, Hook[]>): Hook[] =>
  [...found].sort(([one], [other]) => (one < other ? -1 : 1)).flatMap(([, hooks]) => hooks);

/** As it is once it is checked. */
interface Configuration {
  kind: string;
  metadata: { name: string };
  webhooks?: (Pick<Hook, "name" | "clientConfig" | "admissionReviewVersions"> & Partial<Hook>)[] | null;
}

const hooksOf = ({ metadata, webhooks }: Configuration, phase: Phase): Hook[] => {
  const counts = new Map<string, number>();
  return (webhooks ?? []).map((entry) => {
    const count = counts.get(entry.name) ?? 0;
    counts.set(entry.name, count + 1);
    return {
      ...{ phase, configuration: metadata.name, name: entry.name },
      identity: `${metadata.name}/${entry.name}/${count}`,
      rules: (entry.rules ?? []).map(({ scope, ...rule }) => ({ ...rule, scope: scope ?? "*" })),
      failurePolicy: entry.failurePolicy ?? "Fail",
      matchPolicy: entry.matchPolicy ?? "Equivalent",
      reinvocationPolicy: entry.reinvocationPolicy ?? "Never",
      namespaceSelector: selectorOf(entry.namespaceSelector),
      objectSelector: selectorOf(entry.objectSelector),
      matchConditions: entry.matchConditions ?? [],
      ...(entry.sideEffects != null && { sideEffects: entry.sideEffects }),
      timeoutSeconds: entry.timeoutSeconds ?? 10,
      admissionReviewVersions: entry.admissionReviewVersions,
      clientConfig: entry.clientConfig,
    };
  });
};

/** In YAML, what is left empty is null. */
const selectorOf = (selector: LabelSelector | null | undefined): LabelSelector => {
  const { matchLabels, matchExpressions } = selector ?? {};
  return {
    ...(matchLabels != null && { matchLabels }),
    ...(matchExpressions != null && {
      matchExpressions: matchExpressions.map(({ values, ...one }) => ({ ...one, ...(values != null && { values }) })),
    }),
  };
};
