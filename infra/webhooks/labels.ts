/** The label with the name of the webhook configurations, by which kubectl finds all objects that were printed with them. */
export const instanceLabel = "app.kubernetes.io/instance";

/** Returns the labels of each object that is written into a cluster. `name` is that of the webhook configurations. */
export const buildObjectLabels = (name: string) => ({
  "app.kubernetes.io/managed-by": "postern",
  [instanceLabel]: name,
});
