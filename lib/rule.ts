import type { AnyBinding, AnyPolicy } from "./admission-policies/types.ts";
import type { Answers, Capabilities, Needs } from "./needs.ts";
import type { LabelSelector } from "./objects/selection.ts";
import type { AdmissionRequest, KubernetesObject, Operation, Status } from "./review.ts";
import type { SettingChoices, SettingElements } from "./settings.ts";
import type { Since } from "./since.ts";

/** The requests that concern a rule, as in a webhook entry's `rules`. */
export interface RequestMatch {
  apiGroups: readonly string[];
  apiVersions: readonly string[];
  resources: readonly string[];
  operations: readonly (Operation | "*")[];
  scope?: "*" | "Cluster" | "Namespaced";
}

export type Phase = "mutate" | "validate";

/** The CEL expressions of matchConditions by name; all must be true for the API server to call the rule. */
export type NamedConditions = Record<string, string>;

/** One value for both phases, or one value for each phase. */
export type PerPhase<T> = T | { mutate?: T; validate?: T };

/** A value, or a pure function of the rule's settings, evaluated when webhook entries are made. */
export type OfSettings<T, Settings> = T | { bivarianceHack(settings: Settings): T }["bivarianceHack"];

/** The result of a rule: nothing admits, a sentence refuses, an object adds warnings and audit annotations. */
// biome-ignore lint/suspicious/noConfusingVoidType: a rule that says nothing has no return statement
export type Verdict = void | string | { refuse?: string | Status; warnings?: string[]; audit?: Record<string, string> };

/** The result of `suggest`: undefined if it edited the draft or has no advice; a sentence if no edit would help. */
// biome-ignore lint/suspicious/noConfusingVoidType: a suggestion that edits has no return statement
type SuggestResult = void | string;

/** The second argument of a rule: all it may know besides the object. */
export type RuleContext<Object, Settings, N extends Needs, Upstream extends object = object> = {
  request: AdmissionRequest;
  oldObject: Object | null;
  settings: Settings;
  variant?: string | undefined;
  now: Date;
} & Answers<N> &
  /** The entries of the rule's `since` that apply to the cluster's minor version of Kubernetes, merged. */
  ([keyof Upstream] extends [never] ? unknown : { upstream: Readonly<Upstream> });

/** The argument of `reconcile`: all it may know. Times are in milliseconds since 1970. */
export type ReconcileContext<Settings, N extends Needs> = {
  settings: Settings;
  readTime(): number;
  /** When to begin nothing more. The needs work for some time after it. */
  until: number;
} & Answers<N>;

interface WebhookEntryFields<Settings> {
  match: OfSettings<PerPhase<readonly RequestMatch[]>, Settings>;
  /** The entry's CEL matchConditions. They only save calls: the rule must decide the same without them. */
  matchConditions?: OfSettings<PerPhase<NamedConditions>, Settings>;
  /** Conditions over CEL's `authorizer`, true if the request must be denied; only then is the function called. */
  authorizedBy?: OfSettings<PerPhase<NamedConditions>, Settings>;
  namespaceSelector?: OfSettings<LabelSelector, Settings>;
  objectSelector?: OfSettings<LabelSelector, Settings>;
  matchPolicy?: "Equivalent" | "Exact";
  /** True if the rule refuses for security reasons: hardening then changes its failurePolicy to Fail. */
  guards?: boolean;
  /**
   * True if the rule, once hardened, fails closed in kube-system and kube-node-lease, too. The author states thereby
   * that the rule can't block the repair of a cluster.
   */
  everywhere?: true;
  timeoutSeconds?: number;
  sideEffects?: "None" | "NoneOnDryRun";
  /**
   * "Never" for a rule whose second call on an object might apply its change twice. Other rules are called again if a
   * later rule changed the object.
   */
  reinvocationPolicy?: "Never";
}

/**
 * One of several entries of a rule, each with its own URL; absent fields are the rule's. A variant that matches nothing
 * under the settings has no entry but is still served: entries of earlier settings may call it.
 */
export interface RuleVariant<Settings>
  extends Partial<
    Pick<
      WebhookEntryFields<Settings>,
      | "match"
      | "matchConditions"
      | "matchPolicy"
      | "namespaceSelector"
      | "objectSelector"
      | "guards"
      | "everywhere"
      | "timeoutSeconds"
      | "reinvocationPolicy"
    >
  > {
  name: string;
  /** The failurePolicy of the entry, with and without hardening, unless postern.yaml sets Ignore. */
  failurePolicy?: "Fail" | "Ignore";
  settings?: Partial<Settings>;
  /** A policy by which an API server does the same without a call. */
  native?: NativePolicy;
}

/** An admission policy of Kubernetes, and its bindings, as they are in the settings of a rule. */
export interface NativePolicy {
  readonly policy: AnyPolicy;
  readonly bindings: readonly AnyBinding[];
  /** Returns why an API server of a minor version of Kubernetes refuses an expression of the policy. */
  findExpressionFault(kubernetes: string): string | undefined;
}

/** The compiled-in admission plugin that a rule is a port of. */
export interface UpstreamPlugin<Settings> {
  /** The plugin's name for `--enable-admission-plugins`. */
  plugin: string;
  /**
   * What the rule is still good for if the plugin is on, in a sentence that its README has as well. By default, the
   * rule is for clusters that turned the plugin off.
   */
  worthwhile?: string;
  /** The settings under which the rule does what the plugin does, if its defaults do something else. */
  settings?: Partial<Settings>;
}

/** Objects read from manifests for a setting, and what is wrong with them, in sentences. */
export interface ParsedManifests {
  objects: object[];
  faults: (string | ManifestFault)[];
}

/** A fault whose place is known: the index of a document, and the path to a field in it. */
export interface ManifestFault {
  sentence: string;
  document: number;
  path: (string | number)[];
}

/**
 * The settings from which a rule's webhook entries are made, extended by what is in the cluster, and notes about
 * this.
 */
export interface SettingsAfterInspection<Settings> {
  settings: Settings;
  notes: string[];
}

/** The questions that a cluster inspection may ask; a manifest cluster may have no discovery. */
export type InspectedCluster = Pick<Capabilities, "list"> & Partial<Pick<Capabilities, "discover">>;

export interface RuleDefinition<Object, Settings extends object, N extends Needs, Upstream extends object = object>
  extends WebhookEntryFields<Settings> {
  /** The rule's summary for the catalogue: one sentence. */
  summary: string;
  /** The place among kube-apiserver's admission plugins, 1 to 41. Default: 37, that of webhooks, sorted by name. */
  order?: number;
  /** The upstream plugin; `npm run parity` sends both the same requests. */
  upstreamPlugin?: UpstreamPlugin<Settings>;
  /** The rule's default settings, which are also the shape that its settings in postern.yaml are checked against. */
  settings?: Settings;
  /** The values that settings may have, by their path, such as `mode` or `limits.type`. */
  choices?: SettingChoices;
  /** Examples of what lists and open maps of the settings hold, by their path, such as `labels: ""` for texts. */
  elements?: SettingElements;
  /** Reads settings that hold objects: in postern.yaml they may be files or folders of manifests. */
  manifests?: { readonly [Setting in keyof Settings]?: (documents: readonly unknown[]) => ParsedManifests };
  /**
   * Settings that name a kubeconfig of a service, by their path such as `imagePolicy.kubeConfigFile`, each with the
   * setting that postern.yaml's reader fills from the file.
   */
  kubeconfigs?: Readonly<Record<string, string>>;
  /** Returns settings extended by objects of the cluster. Only `match` and rights of `needs` use them. */
  inspectForSettings?(settings: Settings, cluster: InspectedCluster): Promise<SettingsAfterInspection<Settings>>;
  /** Returns what is wrong with settings of the right shape, in a sentence. `clusters` are those of postern.yaml, if it has any. */
  checkSettings?(settings: Settings, clusters?: readonly string[]): string | undefined;
  /**
   * Compiles all CEL expressions of settings as reviews do, or as an API server of a minor version of Kubernetes does. A
   * function can evaluate only what was compiled so.
   */
  compileExpressions?(settings: Settings, kubernetes?: string): void;
  /** True if postern.yaml must set `exempt` when it turns this rule on, as for always-deny. */
  exemptionRequired?: boolean;
  /**
   * Gives the rule several webhook entries, each with settings of its own. The rule must also be correct without
   * variants.
   */
  variants?: OfSettings<readonly RuleVariant<Settings>[], Settings>;
  /**
   * What differs between minor versions of Kubernetes, as data: the values of the oldest version, and under each later
   * one the members that it changed, in ascending order. `upstream` of the context has those of the cluster's version,
   * or of the newest if it is not known.
   */
  since?: Since<Partial<Upstream>> & { readonly "1.0": Upstream };
  /** The questions that the rule may ask; its rights follow from them. */
  needs?: N;
  /** True if an integer in the request's objects that a number doesn't hold is a bigint, instead of being rounded. */
  exactIntegers?: true;
  mutate?(object: Object, context: RuleContext<Object, Settings, N, Upstream>): Verdict | Promise<Verdict>;
  validate?(object: Object, context: RuleContext<Object, Settings, N, Upstream>): Verdict | Promise<Verdict>;
  /**
   * Does a part of work that no review asks for, and keeps its place in the ledger, because it may end at any time. It is
   * called each minute for each cluster that can be read. It returns what it has finished, in a sentence for the log.
   */
  reconcile?(context: ReconcileContext<Settings, N>): Promise<string | undefined>;
  /**
   * Edits a draft to what the author of a refused object could write instead; or returns advice in a sentence without
   * its full stop, if no edit would do. Only `postern check` calls it, and tries an edit before it shows it.
   */
  suggest?(object: Object, context: RuleContext<Object, Settings, N, Upstream>): SuggestResult | Promise<SuggestResult>;
}

/** Any rule, whatever its object and settings. */
export type Rule = RuleDefinition<KubernetesObject, object, Needs>;

/** Defines a rule: what it matches, needs and does. Having `mutate` or `validate` gives it that phase. */
export const rule = <
  Object = KubernetesObject,
  Settings extends object = object,
  N extends Needs = Record<never, never>,
  Upstream extends object = Record<never, never>,
>(
  definition: RuleDefinition<Object, Settings, N, Upstream>,
  // The cast is safe: methods take their arguments bivariantly, and `match` gives the object the right kind.
): Rule => definition as unknown as Rule;

export const listPhases = ({ mutate, validate }: Rule): Phase[] => [
  ...(mutate ? ["mutate" as const] : []),
  ...(validate ? ["validate" as const] : []),
];

/**
 * Returns the value that a rule's field, such as `match`, has for one phase (mutate or validate). If the field is a
 * function, calls it with the settings.
 */
export const selectPhase = <T extends object>(
  value: OfSettings<PerPhase<T>, object> | undefined,
  phase: Phase,
  settings: object,
): T | undefined => {
  const selected = typeof value === "function" ? value(settings) : value;
  if (selected === undefined) return undefined;
  const otherPhase = phase === "mutate" ? "validate" : "mutate";
  const split = [phase, otherPhase].some((key) => key in selected && typeof Reflect.get(selected, key) === "object");
  return (split ? Reflect.get(selected, phase) : selected) as T | undefined;
};

/** Returns a rule's variants under these settings; undefined if it has none. */
export const getVariants = ({ variants }: Rule, settings: object): readonly RuleVariant<object>[] | undefined => {
  if (typeof variants !== "function") return variants;
  const known = variantsBySettings.get(variants) ?? new WeakMap<object, readonly RuleVariant<object>[]>();
  variantsBySettings.set(variants, known);
  const found = known.get(settings) ?? variants(settings);
  known.set(settings, found);
  return found;
};

/** A cache of rules' variants: a rule with hundreds of policies is asked for all its variants once for each policy. */
const variantsBySettings = new WeakMap<object, WeakMap<object, readonly RuleVariant<object>[]>>();
