import type { AnyBinding, AnyPolicy } from "./admission-policies/types.ts";
import type { Answers, Capabilities, Needs } from "./needs.ts";
import type { LabelSelector } from "./objects/selection.ts";
import type { AdmissionRequest, KubernetesObject, Operation, Status } from "./review.ts";
import type { SettingChoices, SettingElements } from "./settings.ts";
import type { Since } from "./since.ts";

/** The requests that the API server sends to a rule: an element of `rules` in a webhook configuration. */
export interface RequestMatch {
  apiGroups: readonly string[];
  apiVersions: readonly string[];
  resources: readonly string[];
  operations: readonly (Operation | "*")[];
  scope?: "*" | "Cluster" | "Namespaced";
}

export type Phase = "mutate" | "validate";

/** The CEL expressions of matchConditions, by name. The API server calls the rule only if all of them are true. */
export type NamedConditions = Record<string, string>;

/** One value for both phases, or one value for each phase. */
export type PerPhase<T> = T | { mutate?: T; validate?: T };

/** A value, or a pure function of the rule's settings, evaluated when webhook entries are made. */
export type OfSettings<T, Settings> = T | { bivarianceHack(settings: Settings): T }["bivarianceHack"];

/**
 * What a rule returns. `undefined` admits the object. A sentence refuses it. An object adds warnings and audit
 * annotations, and refuses only if it has `refuse`.
 */
// biome-ignore lint/suspicious/noConfusingVoidType: a rule that says nothing has no return statement
export type Verdict = void | string | { refuse?: string | Status; warnings?: string[]; audit?: Record<string, string> };

/** The result of `suggest`: `undefined` if it edited the draft or has no advice; otherwise advice in a sentence. */
// biome-ignore lint/suspicious/noConfusingVoidType: a suggestion that edits has no return statement
type SuggestResult = void | string;

/** The second argument of a rule's `mutate` and `validate`: all that the rule may know besides the object. */
export type RuleContext<Object, Settings, N extends Needs, Upstream extends object = object> = {
  request: AdmissionRequest;
  oldObject: Object | null;
  settings: Settings;
  variant?: string | undefined;
  now: Date;
} & Answers<N> &
  /** The rule's `since` for the cluster's version of Kubernetes: data that differ between versions of upstream. */
  ([keyof Upstream] extends [never] ? unknown : { upstream: Readonly<Upstream> });

/** The argument of a rule's `reconcile`. Times are in milliseconds since 1970. */
export type ReconcileContext<Settings, N extends Needs> = {
  settings: Settings;
  readTime(): number;
  /** From this time on, `reconcile` must begin no new work. It can still use its needs for a while, to finish. */
  until: number;
} & Answers<N>;

/** The fields of a rule that become fields of its webhook entry. */
interface WebhookEntryFields<Settings> {
  match: OfSettings<PerPhase<readonly RequestMatch[]>, Settings>;
  /** The entry's CEL matchConditions. They only save calls: without them, the rule must return the same verdicts. */
  matchConditions?: OfSettings<PerPhase<NamedConditions>, Settings>;
  /**
   * Conditions that are true for users who lack a certain right, such as CEL's `!authorizer.….allowed()`. Only for
   * them, the API server calls the function, which denies the request. Users with the right need no call.
   */
  authorizedBy?: OfSettings<PerPhase<NamedConditions>, Settings>;
  namespaceSelector?: OfSettings<LabelSelector, Settings>;
  objectSelector?: OfSettings<LabelSelector, Settings>;
  matchPolicy?: "Equivalent" | "Exact";
  /** True if the rule refuses for security reasons. Hardening (in postern.yaml) changes its failurePolicy to Fail. */
  guards?: boolean;
  /**
   * True if hardening sets failurePolicy Fail in the namespaces kube-system and kube-node-lease, too. With it, the
   * rule's author states that the rule can't block the repair of a cluster.
   */
  everywhere?: true;
  timeoutSeconds?: number;
  sideEffects?: "None" | "NoneOnDryRun";
  /**
   * "Never" for a rule that might apply its change twice if it is called twice for one object. Without it, the API
   * server calls the rule again if a later rule changed the object.
   */
  reinvocationPolicy?: "Never";
}

/**
 * A rule with variants has one webhook entry for each variant, each with its own URL. Fields that a variant doesn't set
 * have the rule's values. A variant that matches nothing under the current settings has no entry. Its URL is answered
 * all the same, because entries that were made from earlier settings may call it.
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
  /**
   * The failurePolicy of the variant's entry. Hardening, which gives the entries of security rules the failurePolicy
   * Fail, doesn't change it. But the entry has Ignore if postern.yaml says so for the rule, or in a mode other than
   * enforce.
   */
  failurePolicy?: "Fail" | "Ignore";
  settings?: Partial<Settings>;
  /** An admission policy with which the API server makes the variant's decisions itself, without a call. */
  native?: NativePolicy;
}

/** An admission policy of Kubernetes and its bindings, in the form that a rule's settings contain. */
export interface NativePolicy {
  readonly policy: AnyPolicy;
  readonly bindings: readonly AnyBinding[];
  /** Returns why an API server of this minor version refuses an expression of the policy; undefined if it doesn't. */
  findExpressionFault(kubernetes: string): string | undefined;
}

/** The admission plugin of kube-apiserver that a rule reimplements. */
export interface UpstreamPlugin<Settings> {
  /** The plugin's name for `--enable-admission-plugins`. */
  plugin: string;
  /**
   * Why a cluster may use the rule although the plugin is on, in a sentence that the rule's README contains, too. Left
   * out for a rule that is only for clusters in which the plugin is off.
   */
  worthwhile?: string;
  /** The settings under which the rule decides as the plugin does. Left out if the rule's default settings do. */
  settings?: Partial<Settings>;
}

/** The objects that manifests contain, to be used as the value of a setting, and the faults of the manifests. */
export interface ParsedManifests {
  objects: object[];
  faults: (string | ManifestFault)[];
}

/** A fault in a field: what is wrong, the index of the document, and the path of the field in the document. */
export interface ManifestFault {
  sentence: string;
  document: number;
  path: (string | number)[];
}

/** What a rule's webhook entries are made from, once the cluster was read. */
export interface SettingsAfterInspection<Settings> {
  /** The rule's settings, extended by objects of the cluster, such as policies. */
  settings: Settings;
  /** Sentences to print for the user, such as that a policy selects a kind which the cluster doesn't serve. */
  notes: string[];
}

/** The reads that `inspectForSettings` may do. `discover` may be absent if manifests stand in for the cluster. */
export type InspectedCluster = Pick<Capabilities, "list"> & Partial<Pick<Capabilities, "discover">>;

/** What a rule's file defines with `rule({ … })`. */
export interface RuleDefinition<Object, Settings extends object, N extends Needs, Upstream extends object = object>
  extends WebhookEntryFields<Settings> {
  /** The rule's summary for the catalogue: one sentence. */
  summary: string;
  /**
   * The position among kube-apiserver's admission plugins, 1 to 41. Default: 37, the position of webhooks. Rules at one
   * position are sorted by name.
   */
  order?: number;
  /** The plugin of kube-apiserver that the rule reimplements. `npm run parity` sends the same requests to both. */
  upstreamPlugin?: UpstreamPlugin<Settings>;
  /** The rule's default settings. They also say which settings postern.yaml may have, and of which types. */
  settings?: Settings;
  /** The values that settings may have, by their path, such as `mode` or `limits.type`. */
  choices?: SettingChoices;
  /** Examples of what a list or a map with any keys contains, by its path. `labels: ""`: labels contains texts. */
  elements?: SettingElements;
  /** Readers for settings that contain objects. postern.yaml may name files or folders of manifests for them. */
  manifests?: { readonly [Setting in keyof Settings]?: (documents: readonly unknown[]) => ParsedManifests };
  /**
   * The settings that are filled from a kubeconfig file of a service when postern.yaml is read. Each key is the path of
   * the setting that names the file, such as `imagePolicy.kubeConfigFile`; its value is the setting that is filled.
   */
  kubeconfigs?: Readonly<Record<string, string>>;
  /** Returns settings extended by objects of the cluster. Only `match` and the rights for `needs` use the result. */
  inspectForSettings?(settings: Settings, cluster: InspectedCluster): Promise<SettingsAfterInspection<Settings>>;
  /**
   * Returns what is wrong with settings, in a sentence; undefined if they are valid. It is called only with settings of
   * the right types. `clusters`: the names of the clusters in postern.yaml.
   */
  checkSettings?(settings: Settings, clusters?: readonly string[]): string | undefined;
  /**
   * Compiles all CEL expressions of the settings when a function is built: a function can evaluate only expressions
   * that were compiled then. With `kubernetes`, compiles them as an API server of that minor version does.
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
   * Data that differs between minor versions of Kubernetes. "1.0" has the values for the oldest version; each later
   * version has only the members that it changed. Versions are in ascending order. `upstream` of the context has the
   * values for the cluster's version, or for the newest version if the cluster's version is not known.
   */
  since?: Since<Partial<Upstream>> & { readonly "1.0": Upstream };
  /** The questions that the rule may ask; its rights follow from them. */
  needs?: N;
  /** True if large integers in the request's objects become bigints. Otherwise, they are rounded to numbers. */
  exactIntegers?: true;
  mutate?(object: Object, context: RuleContext<Object, Settings, N, Upstream>): Verdict | Promise<Verdict>;
  validate?(object: Object, context: RuleContext<Object, Settings, N, Upstream>): Verdict | Promise<Verdict>;
  /**
   * Does a part of work that no review asks for. A schedule calls it each minute for each cluster that can be read. It
   * may be stopped at any time, so it stores its progress in the ledger. Returns what it finished, in a sentence for
   * the log.
   */
  reconcile?(context: ReconcileContext<Settings, N>): Promise<string | undefined>;
  /**
   * Edits a refused object to one that the rule might admit. If no edit would help, returns advice: a sentence without
   * its full stop. Only `postern check` calls it, and shows an edited object only if the rules admit it.
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
  Upstream extends object = Record<never, never>, // the data in `since`, for one version of Kubernetes
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
  const isPerPhase = [phase, otherPhase].some((key) => typeof Reflect.get(selected, key) === "object");
  return (isPerPhase ? Reflect.get(selected, phase) : selected) as T | undefined;
};

/** Returns a rule's variants under these settings; undefined if it has none. */
export const getVariants = ({ variants }: Rule, settings: object): readonly RuleVariant<object>[] | undefined => {
  if (typeof variants !== "function") return variants;
  const cache = variantsBySettings.get(variants) ?? new WeakMap<object, readonly RuleVariant<object>[]>();
  variantsBySettings.set(variants, cache);
  const variantsOfSettings = cache.get(settings) ?? variants(settings);
  cache.set(settings, variantsOfSettings);
  return variantsOfSettings;
};

/** A cache, by a rule's `variants` and by settings. A rule with hundreds of policies reads its variants for each. */
const variantsBySettings = new WeakMap<object, WeakMap<object, readonly RuleVariant<object>[]>>();
