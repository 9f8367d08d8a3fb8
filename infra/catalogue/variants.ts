import { type Rule, variantsOf } from "#lib/rule.ts";
import { merge } from "#lib/settings.ts";

/** A rule and its settings as one of its variants has them, as if it had no others; the rule itself, if none is named. */
export const asVariant = (rule: Rule, settings: object, variant: string | undefined) => {
  const found = variantsOf(rule, settings)?.find(({ name }) => name === variant);
  const { name: _, settings: own, ...differences } = found ?? { name: "" };
  const { variants: __, ...whole } = rule;
  return { rule: { ...whole, ...differences }, settings: merge(settings, own) };
};
