/** The label with the name of the webhook configurations. With it, kubectl finds all objects that belong to them. */
export const instanceLabel = "app.kubernetes.io/instance";

/** The label of all objects that Postern writes to a cluster. Its value is `postern`. */
export const managedByLabel = "app.kubernetes.io/managed-by";

/** Returns the labels of each object that Postern writes there. `name` is the name of the webhook configurations. */
export const buildObjectLabels = (name: string) => ({ [managedByLabel]: "postern", [instanceLabel]: name });
