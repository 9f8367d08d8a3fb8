import { isMap, toMap } from "#lib/json.ts";
import type { LabelSelector } from "#lib/objects/selection.ts";
import type { Phase, RequestMatch } from "#lib/rule.ts";
import { listWebhookConfigFaults, listWebhookConfigWarnings } from "./configurations.ts";

/** A webhook entry with the API server's defaults; or a compiled-in plugin, which is matched and called alike. */
export interface DefaultedWebhookEntry {
  /** Set for a compiled-in plugin: no resource is exempt from it, and clients get its refusals as they are. */
  isPlugin?: true;
  /** The policy that an entry of a plugin evaluates. */
  policy?: string;
  phase: Phase;
  configuration: string;
  name: string;
  /** A text that identifies the webhook entry: unique among all mutating or all validating entries. */
  identity: string;
  rules: readonly RequestMatch[];
  failurePolicy: "Fail" | "Ignore";
  matchPolicy: "Equivalent" | "Exact";
  /** `Always` is for compiled-in plugins: they are called again whenever a webhook or policy changed the object. */
  reinvocationPolicy: "Never" | "IfNeeded" | "Always";
  namespaceSelector: LabelSelector;
  objectSelector: LabelSelector;
  matchConditions: readonly { name: string; expression: string }[];
  /** The hook's `sideEffects`; absent only in webhook configurations that an API server stored long ago. */
  sideEffects?: string;
  timeoutSeconds: number;
  admissionReviewVersions: readonly string[];
  clientConfig: { url?: string; service?: object; caBundle?: string };
}

/** The hooks by phase, in the order in which an API server calls them, and a sentence for each fault and warning. */
export interface WebhookEntriesByPhase {
  mutating: DefaultedWebhookEntry[];
  validating: DefaultedWebhookEntry[];
  faults: string[];
  warnings: string[];
}

const kinds: Record<string, Phase> = {
  MutatingWebhookConfiguration: "mutate",
  ValidatingWebhookConfiguration: "validate",
};

const isConfiguration = (manifest: unknown): boolean =>
  isMap(manifest) && typeof manifest.kind === "string" && Object.hasOwn(kinds, manifest.kind);

/**
 * Returns the webhook entries of configurations, with the faults and warnings of an API server of this minor version,
 * by default the newest. A configuration that the API server would refuse has no entries, only faults.
 */
export const parseWebhookConfigurations = (
  configurations: readonly unknown[],
  kubernetes?: string,
): WebhookEntriesByPhase => {
  const [faults, warnings]: [string[], string[]] = [[], []];
  const found: Record<Phase, Map<string, DefaultedWebhookEntry[]>> = { mutate: new Map(), validate: new Map() };
  for (const [index, manifest] of configurations.entries()) {
    const phase = isConfiguration(manifest) ? kinds[String(toMap(manifest).kind)] : undefined;
    if (phase === undefined) {
      faults.push(`configuration ${index + 1} is neither a ${Object.keys(kinds).join(" nor a ")}`);
      continue;
    }
    const configuration = manifest as WebhookConfiguration;
    const title = `${configuration.kind} ${JSON.stringify(String(toMap(configuration.metadata).name ?? ""))}`;
    const configurationFaults = listWebhookConfigFaults(configuration, kubernetes);
    if (configurationFaults.length > 0) {
      for (const fault of configurationFaults) faults.push(`${title}: ${fault}`);
      continue;
    }
    for (const warning of listWebhookConfigWarnings(configuration, kubernetes)) warnings.push(`${title}: ${warning}`);
    const { name } = configuration.metadata;
    if (found[phase].has(name)) faults.push(`${title} is there twice; the last one counts`);
    found[phase].set(name, toHooks(configuration, phase));
  }
  return { mutating: sortByName(found.mutate), validating: sortByName(found.validate), faults, warnings };
};

/** Sorts webhook entries by their configurations' names: by bytes, as the API server does, since names are ASCII. */
const sortByName = (found: Map<string, DefaultedWebhookEntry[]>): DefaultedWebhookEntry[] =>
  [...found].sort(([left], [right]) => (left < right ? -1 : 1)).flatMap(([, hooks]) => hooks);

/** A configuration that `listWebhookConfigFaults` has accepted. */
interface WebhookConfiguration {
  kind: string;
  metadata: { name: string };
  webhooks?:
    | (Pick<DefaultedWebhookEntry, "name" | "clientConfig" | "admissionReviewVersions"> &
        Partial<DefaultedWebhookEntry>)[]
    | null;
}

/** Returns the entries of a webhook configuration with the API server's defaults. */
const toHooks = ({ metadata, webhooks }: WebhookConfiguration, phase: Phase): DefaultedWebhookEntry[] => {
  const counts = new Map<string, number>();
  return (webhooks ?? []).map((entry) => {
    const count = counts.get(entry.name) ?? 0;
    counts.set(entry.name, count + 1);
    return {
      phase,
      configuration: metadata.name,
      name: entry.name,
      identity: `${metadata.name}/${entry.name}/${count}`,
      rules: (entry.rules ?? []).map(({ scope, ...rule }) => ({ ...rule, scope: scope ?? "*" })),
      failurePolicy: entry.failurePolicy ?? "Fail",
      matchPolicy: entry.matchPolicy ?? "Equivalent",
      reinvocationPolicy: entry.reinvocationPolicy ?? "Never",
      namespaceSelector: dropNullMembers(entry.namespaceSelector),
      objectSelector: dropNullMembers(entry.objectSelector),
      matchConditions: entry.matchConditions ?? [],
      ...(entry.sideEffects != null && { sideEffects: entry.sideEffects }),
      timeoutSeconds: entry.timeoutSeconds ?? 10,
      admissionReviewVersions: entry.admissionReviewVersions,
      clientConfig: entry.clientConfig,
    };
  });
};

/** Returns a label selector without its null members, which empty values in YAML become. */
const dropNullMembers = (selector: LabelSelector | null | undefined): LabelSelector => {
  const { matchLabels, matchExpressions } = selector ?? {};
  return {
    ...(matchLabels != null && { matchLabels }),
    ...(matchExpressions != null && {
      matchExpressions: matchExpressions.map(({ values, ...requirement }) => ({
        ...requirement,
        ...(values != null && { values }),
      })),
    }),
  };
};
