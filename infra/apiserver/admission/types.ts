import type { GroupVersionKind, GroupVersionResource, KubernetesObject, Request, Status } from "#lib/review.ts";
import type { Phase } from "#lib/rule.ts";
import type { Hook } from "./hooks.ts";

/** A write as admission sees it: a review's request but for what differs from call to call. */
export type Attributes = Omit<Request, "uid" | "requestKind" | "requestResource" | "requestSubResource">;

/** An AdmissionReview as it is sent. */
export interface Sent {
  kind: "AdmissionReview";
  apiVersion: string;
  request: Request;
}

/** What came of a call: an answer, a reason why there is none, or nobody was asked. */
export type Called =
  /** The AdmissionReview that it answered, as parsed from its JSON; what is wrong with it is found here. */
  | { body: unknown }
  /** It could not be called or gave no answer; the text is what the API server shows after `failed to call webhook: `. */
  | { failure: string }
  /** Nobody called it; the chain goes on as if it had admitted. */
  | { would: true }
  /** It can't be said what it would answer, for a reason in a sentence. */
  | { unsupported: string };

/** What an API server has around its admission chain. */
export interface Around {
  /** A namespace that exists; undefined for one that doesn't. */
  namespaceOf(name: string): KubernetesObject | undefined;
  /** Other groups and versions under which the same objects are served. */
  equivalents(resource: GroupVersionResource): readonly GroupVersionResource[];
  /** An object in another version; undefined where nobody knows how. */
  convert(object: unknown, to: GroupVersionKind): unknown;
  /** The object with defaults filled in. */
  fill(object: unknown): unknown;
  /** Sends a review to a hook. */
  call(hook: Hook, review: Sent): Promise<Called>;
  /** What match conditions are compiled with. */
  cel: Cel;
}

/** An evaluator of CEL. */
export interface Cel {
  compile(expression: string): Compiled;
}

/** A condition that can be evaluated. */
export type Compiled = (variables: Variables) => Evaluated;

/** What a condition sees. */
export interface Variables {
  object: unknown;
  oldObject: unknown;
  request: Record<string, unknown>;
}

/** What a condition says: whether it holds, that it failed as it would in an API server, or that this can't be told here. */
export type Evaluated = { holds: boolean } | { error: string } | { unsupported: string };

/** What was done about one hook. */
export interface Step {
  hook: string;
  configuration: string;
  phase: Phase;
  /** 1 where mutation was asked again. */
  round: 0 | 1;
  /** Where it stands: among all hooks that mutate, and among those that validate and match. */
  index: number;
  outcome: "called" | "would be called" | "skipped" | "can't say";
  /** Why it was skipped, or can't be said. */
  why?: string;
  /** As it was sent. */
  request?: Request;
  allowed?: boolean;
  /** The refusal as the client hears it; of a failure that refuses, too. */
  status?: Status;
  /** That there was no valid answer, and the text of it. */
  failure?: string;
  /** Of a failure: that the request went on. */
  ignored?: boolean;
  patch?: unknown[];
  /** Of a patch: the object that it met and the one that it left, in the version that the hook asked for. */
  before?: unknown;
  after?: unknown;
  warnings: string[];
}

/** What the admission chain makes of a write. */
export interface Trace {
  allowed: boolean;
  /** The refusal, as the client hears it. */
  status?: Status;
  /** Where several refuse at once it is chance which of them the client hears: all of them, the first one first. */
  refusals: Status[];
  /** As it goes on to be stored. */
  object: unknown;
  /** As the client hears them. */
  warnings: string[];
  /** What an audit log has of it; patches stand there from level Request on. */
  audit: Record<string, string>;
  steps: Step[];
  /** What can't be said, in sentences; the rest is what holds if none of it matters. */
  undecided: string[];
}
