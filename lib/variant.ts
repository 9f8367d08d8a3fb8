/** By name, the settings that are different in each of a rule's variants. */
export type Variants = Record<string, object>;

/** What is different in a rule's variant, by its cluster's settings or else by its own; undefined where there is none. */
export function variantOf(
  { variants: usual = {} }: { variants?: Variants },
  cluster: { variants?: Variants } | undefined,
  name: string | undefined,
): object | undefined {
  const variants = cluster?.variants ?? usual;
  return name !== undefined && Object.hasOwn(variants, name) ? variants[name] : undefined;
}
