/** Splits an apiVersion such as `apps/v1` into group and version; the group of `v1` is empty. */
export const splitApiVersion = (apiVersion: string): { group: string; version: string } => {
  const [version = "", group = ""] = apiVersion.split("/").reverse();
  return { group, version };
};

export const joinApiVersion = ({ group, version }: { group: string; version: string }): string =>
  group === "" ? version : `${group}/${version}`;

/** Returns the start of the API server's paths for an apiVersion: `/apis/apps/v1` for `apps/v1`, `/api/v1` for `v1`. */
export const toApiPath = (apiVersion: string): string =>
  apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
