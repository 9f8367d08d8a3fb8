/** Splits an apiVersion such as `apps/v1` into group and version; the group of `v1` is empty. */
export const splitApiVersion = (apiVersion: string): { group: string; version: string } => {
  const [version = "", group = ""] = apiVersion.split("/").reverse();
  return { group, version };
};

export const joinApiVersion = ({ group, version }: { group: string; version: string }): string =>
  group === "" ? version : `${group}/${version}`;

/** Returns the path below which the API server serves an apiVersion. */
export const toApiPath = (apiVersion: string): string =>
  apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
