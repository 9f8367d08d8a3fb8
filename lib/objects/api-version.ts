/** Splits an apiVersion such as `apps/v1` into group and version; the group of `v1` is empty. */
export const splitApiVersion = (apiVersion: string): { group: string; version: string } => {
  const slash = apiVersion.lastIndexOf("/");
  return { group: apiVersion.slice(0, Math.max(slash, 0)), version: apiVersion.slice(slash + 1) };
};

export const joinApiVersion = ({ group, version }: { group: string; version: string }): string =>
  group === "" ? version : `${group}/${version}`;

/** Returns the start of the API server's paths for an apiVersion: `/apis/apps/v1` for `apps/v1`, `/api/v1` for `v1`. */
export const toApiPath = (apiVersion: string): string =>
  apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
