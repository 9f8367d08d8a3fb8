import { escaped } from "./json-patch.ts";

/** The annotations of a request that go into its audit log: the first value under a key stays. */
export interface Annotations {
  all: Record<string, string>;
  add(key: string, value: string): void;
}

/** Where nothing is annotated yet. */
export const openAnnotations = (): Annotations => {
  const found = new Map<string, string>();
  return {
    get all() {
      return Object.fromEntries(found);
    },
    add: (key, value) => {
      if (isKey(key) && !found.has(key)) found.set(key, value);
    },
  };
};

const name = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

const isKey = (key: string): boolean => {
  const [prefix = "", own = "", ...more] = key.split("/", 3);
  return more.length === 0 && prefix.length <= 253 && subdomain.test(prefix) && name.test(own);
};

const mutation = "mutation.webhook.admission.k8s.io/";

/** That a hook that mutates was called in a round, and whether it changed the object. */
export const mutationNote = (round: number, index: number, configuration: string, webhook: string, mutated: boolean) =>
  [`${mutation}round_${round}_index_${index}`, escaped(JSON.stringify({ configuration, webhook, mutated }))] as const;

/** What it changed. */
export const patchNote = (round: number, index: number, configuration: string, webhook: string, patch: unknown[]) => {
  // Go writes the members of a map by their names.
  const sorted = patch.map((one) =>
    Object.fromEntries(Object.entries(Object(one)).sort(([a], [b]) => (a < b ? -1 : 1))),
  );
  const value = { configuration, webhook, patch: sorted, patchType: "JSONPatch" };
  return [`patch.webhook.admission.k8s.io/round_${round}_index_${index}`, escaped(JSON.stringify(value))] as const;
};

/** That a hook's failure was ignored. */
export const openNote = (phase: "mutate" | "validate", round: number, index: number, webhook: string) =>
  [
    `failed-open.${phase === "mutate" ? mutation : "validating.webhook.admission.k8s.io/"}round_${round}_index_${index}`,
    webhook,
  ] as const;
