import type { Mode } from "../decide.ts";
import { freezeDeep } from "../json.ts";
import type { LabelSelector } from "../objects/selection.ts";
import {
  getVariants,
  listPhases,
  type OfSettings,
  type Phase,
  type RequestMatch,
  type Rule,
  selectPhase,
} from "../rule.ts";
import { mergeWithDefaults, mistakes } from "../settings.ts";

export interface Ruled {
  rule: Rule;
  settings?: object;
  mode?: Mode;
  /** The name of one of the rule's variants. Variants only save calls; the rule is correct without one. */
  variant?: string;
}

/** One webhook entry of a rule. */
export interface Plan {
  name: string;
  /** The name of the webhook entry, as refusals contain it. */
  entry: string;
  rule: Rule;
  settings: object;
  variant?: string;
  mode: Mode;
  match: Partial<Record<Phase, readonly RequestMatch[]>>;
  /** The rule's namespace selector and object selector; empty ones are left out. */
  selectors: { ofNamespace?: LabelSelector; ofObject?: LabelSelector };
  /** The rule's timeout. */
  milliseconds: number;
}

/** The position of webhooks in the API server's compiled-in admission chain. */
const webhooksPlace = 37;

/** Returns plans in the order in which the API server would call the rules. Throws if settings are invalid. */
export const plansOf = (rules: Record<string, Ruled>): Plan[] =>
  Object.entries(rules)
    .filter(([, { mode }]) => mode !== "off")
    .sort(([one, { rule }], [other, { rule: another }]) => placeOf(rule) - placeOf(another) || (one < other ? -1 : 1))
    .map(([name, ruled]) => checked(name, ruled));

const placeOf = ({ order = webhooksPlace }: Rule) => order;

const checked = (name: string, { rule, settings: given = {}, mode = "enforce", variant }: Ruled): Plan => {
  const [mistake] = mistakes(rule.settings ?? {}, given);
  if (mistake) throw new Error(`rules.${[name, "settings", ...mistake.path].join(".")} ${mistake.sentence}`);
  const settings = freezeDeep(structuredClone(mergeWithDefaults(rule.settings ?? {}, given)));
  const unfit = rule.checkSettings?.(settings);
  if (unfit !== undefined) throw new Error(`rules.${name}.settings: ${unfit}`);

  if (variant === undefined) return planOf(name, rule, settings, mode);
  const variants = getVariants(rule, settings) ?? [];
  const found = variants.find((one) => one.name === variant);
  if (found === undefined)
    throw new Error(`rules.${name}.variant must be one of ${variants.map((one) => one.name).join(", ") || "none"}`);
  const { name: _, settings: own, ...differences } = found;
  return planOf(name, { ...rule, ...differences }, mergeWithDefaults(settings, own), mode, variant);
};

const planOf = (name: string, rule: Rule, settings: object, mode: Mode, variant?: string): Plan => {
  const match: Plan["match"] = {};
  for (const phase of listPhases(rule)) {
    if (Object.keys(selectPhase(rule.authorizedBy, phase, settings) ?? {}).length > 0)
      throw new Error(
        `${name} asks the cluster's authorizer in CEL, which only an API server can; leave it to a webhook`,
      );
    match[phase] = selectPhase(rule.match, phase, settings) ?? [];
  }
  const selectors = {
    ...selecting("ofNamespace", rule.namespaceSelector, settings),
    ...selecting("ofObject", rule.objectSelector, settings),
  };
  const entry = [...(variant === undefined ? [] : [variant]), name, "postern.dev"].join(".");
  const milliseconds = (rule.timeoutSeconds ?? usualTimeout) * 1000;
  return {
    ...{ name, entry, rule, settings, mode, match, selectors, milliseconds },
    ...(variant !== undefined && { variant }),
  };
};

const usualTimeout = 3;

const selecting = (
  whose: keyof Plan["selectors"],
  given: OfSettings<LabelSelector, object> | undefined,
  settings: object,
) => {
  const selector = typeof given === "function" ? given(settings) : given;
  const { matchLabels = {}, matchExpressions = [] } = selector ?? {};
  return Object.keys(matchLabels).length + matchExpressions.length > 0 ? { [whose]: selector } : {};
};
