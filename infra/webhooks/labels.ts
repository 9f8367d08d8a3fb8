/** The label with the name of the webhook configurations, by which kubectl finds all objects that were printed with them. */
export const instanceLabel = "app.kubernetes.io/instance";

/** The label of everything that Postern writes into a cluster, with the value `postern`. */
export const managedByLabel = "app.kubernetes.io/managed-by";

/** Returns the labels of each object that is written into a cluster. `name` is that of the webhook configurations. */
export const buildObjectLabels = (name: string) => ({
  [managedByLabel]: "postern",
  [instanceLabel]: name,
});
