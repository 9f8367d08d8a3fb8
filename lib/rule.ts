import type { Answers, Needs, World } from "./needs.ts";
import type { LabelSelector } from "./objects/selection.ts";
import type { KubernetesObject, Operation, Request, Status } from "./review.ts";

/** Which requests concern a rule, as in a webhook entry's `rules`. */
export interface Match {
  apiGroups: readonly string[];
  apiVersions: readonly string[];
  resources: readonly string[];
  operations: readonly (Operation | "*")[];
  scope?: "*" | "Cluster" | "Namespaced";
}

export type Phase = "mutate" | "validate";

/** CEL expressions by name; all must be true for a call. */
export type Conditions = Record<string, string>;

/** One for both phases, or one for each. */
export type PerPhase<T> = T | { mutate?: T; validate?: T };

/** A value, or a pure function of the rule's settings, evaluated when webhook entries are made. */
export type OfSettings<T, Settings> = T | { bivarianceHack(settings: Settings): T }["bivarianceHack"];

/** What a function says of a request: nothing admits, a sentence refuses, and the object can say more. */
// biome-ignore lint/suspicious/noConfusingVoidType: a rule that says nothing has no return statement
export type Verdict = void | string | { refuse?: string | Status; warnings?: string[]; audit?: Record<string, string> };

/** What could be written instead: nothing where the draft has it, or nobody knows; a sentence where no edit would do. */
// biome-ignore lint/suspicious/noConfusingVoidType: whoever edits has no return statement
export type Suggestion = void | string;

/** The second argument of a rule: all it may know besides the object. */
export type Surroundings<Object, Settings, N extends Needs> = {
  request: Request;
  oldObject: Object | null;
  settings: Settings;
  variant: string | undefined;
  now: Date;
} & Answers<N>;

/** A rule's share of a webhook entry. */
export interface Entry<Settings> {
  match: OfSettings<PerPhase<readonly Match[]>, Settings>;
  /** When a call is worth making. They save calls and never decide. */
  matchConditions?: OfSettings<PerPhase<Conditions>, Settings>;
  /** Conditions over CEL's `authorizer` that are the decision; the function then only denies. */
  authorizedBy?: OfSettings<PerPhase<Conditions>, Settings>;
  namespaceSelector?: OfSettings<LabelSelector, Settings>;
  objectSelector?: OfSettings<LabelSelector, Settings>;
  matchPolicy?: "Equivalent" | "Exact";
  /** Refuses for security's sake: Fail once hardened. */
  guards?: boolean;
  /** Fails closed in kube-system and kube-node-lease, too: nothing that heals a cluster waits for it. */
  everywhere?: true;
  timeoutSeconds?: number;
  sideEffects?: "None" | "NoneOnDryRun";
  /** Of one that may do to an object twice what it is asked for twice; any other is asked again where a later one changed it. */
  reinvocationPolicy?: "Never";
}

/**
 * One of several entries of a rule, each with a URL of its own; what it doesn't say is as the rule has it. One that matches
 * nothing under some settings has no entry there, and is served all the same: entries of yesterday's settings may name it.
 */
export interface Variant<Settings>
  extends Partial<
    Pick<
      Entry<Settings>,
      "match" | "matchConditions" | "namespaceSelector" | "objectSelector" | "guards" | "everywhere" | "timeoutSeconds"
    >
  > {
  name: string;
  settings?: Partial<Settings>;
}

/** A compiled-in admission plugin. */
export interface Twin<Settings> {
  /** As `--enable-admission-plugins` takes it. */
  plugin: string;
  /** On in every API server that doesn't turn it off. */
  defaultOn?: true;
  /**
   * Of one that is on: what the rule is still good for, in a sentence that its README has as well. By default, it is for
   * clusters that turned the plugin off.
   */
  worthwhile?: string;
  /** Under which the rule does what the plugin does, where its defaults do something else. */
  settings?: Partial<Settings>;
}

/** What is written in manifests, as settings hold it; and what is wrong with it, in sentences. */
export interface Written {
  objects: object[];
  faults: string[];
}

/** What entries are made from beside settings: these, extended by what is in the cluster, and what is worth saying of it. */
export interface Survey<Settings> {
  settings: Settings;
  notes: string[];
}

/** What a survey may ask; which kinds there are, not every cluster can say that is written down. */
export type Surveyed = Pick<World, "list"> & Partial<Pick<World, "discover">>;

export interface Definition<Object, Settings extends object, N extends Needs> extends Entry<Settings> {
  /** One sentence, for the catalogue. */
  summary: string;
  /** The place in kube-apiserver's compiled-in chain, 1 to 41. Others stand where it calls webhooks: 37, by name. */
  order?: number;
  /** The compiled-in plugin that the rule is a port of; postern parity sends both the same requests. */
  twin?: Twin<Settings>;
  /** The defaults, which are also the shape that postern.yaml is checked against. */
  settings?: Settings;
  /** The settings that hold objects: in postern.yaml they may be files or folders of manifests, and each object is read by this. */
  manifests?: { readonly [Setting in keyof Settings]?: (documents: readonly unknown[]) => Written };
  /** Where entries follow from what is in the cluster, too. `match` and the rights of `needs` see what it answers; `mutate` and `validate` don't. */
  survey?(settings: Settings, cluster: Surveyed): Promise<Survey<Settings>>;
  /** What is wrong with settings of the right shape, in a sentence. */
  checkSettings?(settings: Settings): string | undefined;
  /** Refused in postern.yaml unless `exempt` is written out there. */
  exemptionRequired?: boolean;
  /** Its entries, where it has more than one. The rule is right under each that a request can reach, and under none. */
  variants?: OfSettings<readonly Variant<Settings>[], Settings>;
  /** What the rule may ask of the world; its rights follow from it. */
  needs?: N;
  mutate?(object: Object, surroundings: Surroundings<Object, Settings, N>): Verdict | Promise<Verdict>;
  validate?(object: Object, surroundings: Surroundings<Object, Settings, N>): Verdict | Promise<Verdict>;
  /**
   * What the author of an object that is refused could write instead: edits a draft as `mutate` does, or says in a
   * sentence, without its full stop, what no edit would do. Only `postern check` asks, and tries an edit before it shows it.
   */
  suggest?(object: Object, surroundings: Surroundings<Object, Settings, N>): Suggestion | Promise<Suggestion>;
}

/** Any rule, whatever it judges and is set up with. */
export type Rule = Definition<KubernetesObject, object, Needs>;

/** A rule: what it matches, what it needs, what it does. Having `mutate` or `validate` gives it that phase. */
export const rule = <
  Object = KubernetesObject,
  Settings extends object = object,
  N extends Needs = Record<never, never>,
>(
  definition: Definition<Object, Settings, N>,
  // Methods take their arguments bivariantly; that the object has the right kind follows from `match`.
): Rule => definition as unknown as Rule;

/** The phases a rule takes part in. */
export const phases = ({ mutate, validate }: Rule): Phase[] => [
  ...(mutate ? ["mutate" as const] : []),
  ...(validate ? ["validate" as const] : []),
];

/** What holds in one phase, for these settings. */
export const inPhase = <T extends object>(
  value: OfSettings<PerPhase<T>, object> | undefined,
  phase: Phase,
  settings: object,
): T | undefined => {
  const given = typeof value === "function" ? value(settings) : value;
  if (given === undefined) return undefined;
  const other = phase === "mutate" ? "validate" : "mutate";
  const split = [phase, other].some((key) => key in given && typeof Reflect.get(given, key) === "object");
  return (split ? Reflect.get(given, phase) : given) as T | undefined;
};

/** The variants of a rule under these settings; of a rule that has none, undefined. */
export const variantsOf = ({ variants }: Rule, settings: object): readonly Variant<object>[] | undefined =>
  typeof variants === "function" ? variants(settings) : variants;
