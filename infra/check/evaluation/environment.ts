import type { Hook, Hooks } from "#infra/apiserver/admission/hooks.ts";
import type { CallResult, CelEvaluator, ReviewToSend, TraceStep } from "#infra/apiserver/admission/types.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { KindIndex } from "../../apiserver/kinds/kinds.ts";
import type { Path } from "../manifests/manifests.ts";
import type { Existing } from "./existing-objects.ts";
import type { Asking, Subject } from "./requests.ts";
import type { Checked } from "./result.ts";
import type { Unevaluated } from "./unevaluated.ts";

export interface Evaluation {
  subject: Pick<Subject, "manifest" | "made"> & Partial<Pick<Subject, "attributes">>;
  checked: Checked;
  audit: Record<string, string>;
  steps: TraceStep[];
  before: unknown;
  after: unknown;
}

/** The cluster that objects are evaluated in: its kinds, objects, webhooks and user. */
export interface Environment {
  kinds: KindIndex;
  existing: Omit<Existing, "capabilities">;
  hooks: Pick<Hooks, "mutating" | "validating">;
  call(hook: Hook, review: ReviewToSend): Promise<CallResult>;
  cel: CelEvaluator;
  /** Returns a hook's name for reports; `message` tells which member of a group refused. */
  nameOf(hook: string, message?: string): string;
  suggestionOf(rule: string, step: TraceStep, at: Path): Promise<string | undefined>;
  asking: Omit<Asking, "operation"> & { operation: Asking["operation"] | undefined };
  /** The objects of --old, which updates start from, by `toKey`. */
  old: ReadonlyMap<string, KubernetesObject>;
  alsoPods: boolean;
  /** Whether all existing objects are known; if not, namespaces that objects name are assumed to exist. */
  isStateKnown: boolean;
  unevaluated: Unevaluated;
  /** A clause that says how to describe namespaces better. */
  moreOf: string;
  missing(namespace: string): void;
}
