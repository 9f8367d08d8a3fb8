import { getVariants, type Rule } from "#lib/rule.ts";
import { mergeWithDefaults } from "#lib/settings.ts";

/** Returns a rule and its settings as one variant has them, without the list of variants. No name applies none. */
export const asVariant = (rule: Rule, settings: object, variant: string | undefined) => {
  const found = getVariants(rule, settings)?.find(({ name }) => name === variant);
  const { name: _, settings: own, ...differences } = found ?? { name: "" };
  const { variants: __, ...whole } = rule;
  return { rule: { ...whole, ...differences }, settings: mergeWithDefaults(settings, own) };
};
