import type { Container, EphemeralContainer, Pod } from "kubernetes-types/core/v1.d.ts";

export type AnyContainer = Container | EphemeralContainer;

/** As whom and as what a container runs: where it doesn't say so itself, its pod says it. */
export const runsAs = ({ spec }: Pod, { securityContext: own }: AnyContainer) => {
  const shared = spec?.securityContext;
  return {
    runAsUser: own?.runAsUser ?? shared?.runAsUser,
    runAsGroup: own?.runAsGroup ?? shared?.runAsGroup,
    runAsNonRoot: own?.runAsNonRoot ?? shared?.runAsNonRoot,
    seLinuxOptions: own?.seLinuxOptions ?? shared?.seLinuxOptions,
    hostProcess: own?.windowsOptions?.hostProcess ?? shared?.windowsOptions?.hostProcess,
  };
};

/** An object with changes; itself where there is none, so that who didn't change can be seen. */
export const withChanges = <T extends object>(object: T, changes: { [Key in keyof T]?: T[Key] | undefined }): T => {
  const made = Object.entries(changes).filter(
    ([key, value]) => value !== undefined && value !== Reflect.get(object, key),
  );
  return made.length > 0 ? { ...object, ...Object.fromEntries(made) } : object;
};
