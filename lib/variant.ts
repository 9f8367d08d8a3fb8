/** The settings that differ in each of a rule's variants, by name. */
export type Variants = Record<string, object>;

/** Returns what differs in a variant of the cluster, or of the rule if the cluster has none. */
export const findVariantSettings = (
  { variants: usual = {} }: { variants?: Variants },
  cluster: { variants?: Variants } | undefined,
  name: string | undefined,
): object | undefined => {
  const variants = cluster?.variants ?? usual;
  return name !== undefined && Object.hasOwn(variants, name) ? variants[name] : undefined;
};
