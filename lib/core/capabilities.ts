import { Failure } from "../failure.ts";
import type { Ledger } from "../ledger.ts";
import type { AccessAnswer, Capabilities, Needs } from "../needs.ts";

const verbs = ["get", "list", "create", "updateStatus", "may", "discover", "https", "http", "aws", "cue"] as const;
export type CapabilityVerb = (typeof verbs)[number];

/** Returns capabilities that call `answer` instead. It gets the arguments, and `ask`, which makes the real call. */
export const interceptCalls = (
  capabilities: Capabilities,
  answer: (verb: CapabilityVerb, args: readonly unknown[], ask: () => Promise<unknown>) => Promise<unknown>,
): Capabilities => {
  // The compiler can't check that `answer` resolves to a value of the type that `ask` resolves to.
  const wrapped: Record<string, unknown> = { ...capabilities };
  for (const verb of verbs) {
    const ask = capabilities[verb] as (...args: unknown[]) => Promise<unknown>;
    wrapped[verb] = (...args: unknown[]) => answer(verb, args, () => ask(...args));
  }
  return wrapped as unknown as Capabilities;
};

/**
 * Returns the functions with which a rule asks for its needs in one review. An equal read is made only once, and again
 * after the rule has written. Adds answers with Secrets to `secrets`.
 */
export const bindNeeds = (
  needs: Needs,
  capabilities: Capabilities,
  rule: string,
  secrets: unknown[] = [],
): Record<string, unknown> => {
  const answers = new Map<string, Promise<unknown>>();
  const collectSecret = (answer: unknown): unknown => {
    secrets.push(answer);
    return answer;
  };
  const cachedCapabilities = interceptCalls(capabilities, (verb, args, ask) => {
    if (isWrite(verb)) answers.clear();
    // Calls that may have side effects, such as writes and HTTP requests, are all made, and no answer is reused.
    if (verbsWithEffects.includes(verb)) return ignoreRejection(ask());
    const question = JSON.stringify([verb, ...args]);
    const answer =
      answers.get(question) ?? ignoreRejection(isSecretRead(verb, args) ? ask().then(collectSecret) : ask());
    answers.set(question, answer);
    return answer;
  });
  return Object.fromEntries(Object.entries(needs).map(([name, need]) => [name, need.bind(cachedCapabilities, rule)]));
};

const isSecretRead = (verb: CapabilityVerb, [kind]: readonly unknown[]): boolean =>
  (verb === "get" || verb === "list") && Object(kind).resource === "secrets";

/** The capability verbs that may have side effects: equal calls are all made, and their answers aren't remembered. */
const verbsWithEffects: readonly CapabilityVerb[] = ["create", "updateStatus", "https", "http", "cue"];

/** Reports whether a capability changes what the cluster stores. */
export const isWrite = (verb: string): boolean => verb === "create" || verb === "updateStatus";

/** Prevents an unhandled rejection: the rule may never await this promise, because another read failed before. */
const ignoreRejection = <T>(answer: Promise<T>): Promise<T> => {
  answer.catch(() => {});
  return answer;
};

/** Returns the members of a SubjectAccessReview's status that rules use. */
export const toAccessAnswer = ({ allowed, reason, evaluationError }: AccessAnswer): AccessAnswer => ({
  allowed,
  ...(reason && { reason }),
  ...(evaluationError && { evaluationError }),
});

/** Returns the capabilities for a cluster without a connection: reads, writes and calls fail; CUE scripts run. */
export const createUnconnectedCapabilities = (cluster: string): Capabilities => {
  const fail = async () => {
    throw new Failure(503, `nothing can be read from cluster "${cluster}": it has no connection here`);
  };
  const failingCalls = Object.fromEntries(verbs.map((verb) => [verb, fail])) as Record<CapabilityVerb, typeof fail>;
  return {
    ...failingCalls,
    cluster,
    ledger: () => unavailableLedger,
    count: () => {},
    cue: (source, evaluate) => evaluate(source),
  };
};

export const unavailableLedger: Ledger = {
  change: async () => {
    throw new Failure(503, "nothing can be kept from one review to the next: there is no ledger here");
  },
};
