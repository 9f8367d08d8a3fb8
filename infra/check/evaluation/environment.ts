import type { Hook, Hooks } from "#infra/apiserver/admission/hooks.ts";
import type { Called, Cel, Sent, Step } from "#infra/apiserver/admission/types.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { Kinds } from "../../apiserver/kinds/kinds.ts";
import type { Path } from "../manifests/manifests.ts";
import type { Existing } from "./existing-objects.ts";
import type { Asking, Subject } from "./requests.ts";
import type { Checked } from "./result.ts";
import type { Unevaluated } from "./unevaluated.ts";

/** The outcome for one object, with everything that a report may show. */
export interface Evaluation {
  subject: Pick<Subject, "manifest" | "made"> & Partial<Pick<Subject, "attributes">>;
  checked: Checked;
  /** Annotations that rules in mode audit add to the audit log. */
  audit: Record<string, string>;
  /** The hooks that were called, or would be. */
  steps: Step[];
  /** The object as it came to the first of them, and as it left the last. */
  before: unknown;
  after: unknown;
}

/** The cluster that objects are evaluated in: its kinds, objects, webhooks and user. */
export interface Environment {
  kinds: Kinds;
  existing: Omit<Existing, "capabilities">;
  hooks: Pick<Hooks, "mutating" | "validating">;
  call(hook: Hook, review: Sent): Promise<Called>;
  cel: Cel;
  /** How a hook is called in a report. */
  nameOf(hook: string, message?: string): string;
  /** What a rule suggests that refused in a step, where it can say; `at` is where the object stands in its manifest. */
  suggestionOf(rule: string, step: Step, at: Path): Promise<string | undefined>;
  asking: Omit<Asking, "operation"> & { operation: Asking["operation"] | undefined };
  /** What updates are made to; deletions and creations need none. */
  old: ReadonlyMap<string, KubernetesObject>;
  alsoPods: boolean;
  /** Whether it is known what exists; where it isn't, namespaces that objects name count as there. */
  isStateKnown: boolean;
  unevaluated: Unevaluated;
  /** Where more could be known of namespaces. */
  moreOf: string;
  /** Hears of a namespace that nobody described. */
  missing(namespace: string): void;
}
