import { escapeAsGo } from "#lib/core/json-patch.ts";
import { exactJson } from "#lib/exact-json.ts";

/** The audit annotations of one request; the first value of a key stays. */
export interface AuditAnnotations {
  all: Record<string, string>;
  add(key: string, value: string): void;
  /** Adds a list of failures that a policy has for the audit log, as JSON. */
  addFailures(list: string): void;
}

/** Collects the audit annotations of a request. Lists of failures, such as ["a"] and ["b"], are joined. */
export const createAuditAnnotations = (): AuditAnnotations => {
  const all: Record<string, string> = {};
  return {
    all,
    add: (key, value) => {
      // A key has a slash, so it is no member of the prototype.
      if (isAnnotationKey(key)) all[key] ??= value;
    },
    addFailures: (list) => {
      const before = all[failuresKey];
      all[failuresKey] = before === undefined ? list : `${before.slice(0, -1)},${list.slice(1)}`;
    },
  };
};

const name = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

const isAnnotationKey = (key: string): boolean => {
  const [prefix = "", lastPart = "", ...more] = key.split("/", 3);
  return more.length === 0 && prefix.length <= 253 && subdomain.test(prefix) && name.test(lastPart);
};

const failuresKey = "validation.policy.admission.k8s.io/validation_failure";
const mutationPrefix = "mutation.webhook.admission.k8s.io/";

/** The call of a webhook entry, `hook`, in a round of a request. */
interface AnnotatedCall {
  phase: "mutate" | "validate";
  round: number;
  index: number;
  configuration: string;
  hook: string;
}

/** Returns the key and value of the annotation that says whether a webhook mutated the object. */
export const buildMutationAnnotation = (
  { round, index, configuration, hook: webhook }: AnnotatedCall,
  mutated: boolean,
) =>
  [
    `${mutationPrefix}round_${round}_index_${index}`,
    escapeAsGo(JSON.stringify({ configuration, webhook, mutated })),
  ] as const;

/** Returns the key and value of the annotation with a webhook's patch. */
export const buildPatchAuditAnnotation = (
  { round, index, configuration, hook: webhook }: AnnotatedCall,
  patch: unknown[],
) => {
  // The keys of each operation are sorted, as Go sorts a map's keys when it encodes JSON.
  const sorted = patch.map((operation) =>
    Object.fromEntries(Object.entries(operation ?? {}).sort(([a], [b]) => (a < b ? -1 : 1))),
  );
  const value = { configuration, webhook, patch: sorted, patchType: "JSONPatch" };
  return [
    `patch.webhook.admission.k8s.io/round_${round}_index_${index}`,
    escapeAsGo(exactJson.stringify(value)),
  ] as const;
};

/** Returns the audit annotation of a hook whose failure was ignored. */
export const buildFailedOpenAnnotation = ({ phase, round, index, hook }: AnnotatedCall) =>
  [
    `failed-open.${phase === "mutate" ? mutationPrefix : "validating.webhook.admission.k8s.io/"}round_${round}_index_${index}`,
    hook,
  ] as const;
