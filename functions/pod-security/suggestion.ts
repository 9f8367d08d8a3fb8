import type { Container, Namespace, Pod, PodSpec, Volume } from "postern/kubernetes/core/v1";
import { type AnyContext, getContext, isAllowedProfile, type PodSecurityViolation } from "./checks/check-builders.ts";
import { toSubject } from "./pods.ts";
import { type NamespacePolicy, parseNamespacePolicy, podSecurityLevels } from "./policy.ts";

/** Returns advice for the first invalid pod-security label of a namespace; undefined if all are valid. */
export const suggestLabelCorrection = ({ metadata }: Namespace, defaults: NamespacePolicy): string | undefined => {
  const [fault] = parseNamespacePolicy(metadata?.labels ?? {}, defaults).faults;
  if (!fault) return undefined;
  const choice = fault.field.includes("-version]")
    ? "latest, or to a version such as v1.30"
    : listAlternatives(podSecurityLevels);
  return `set ${fault.field} to ${choice}`;
};

const listAlternatives = (texts: readonly string[]) => `${texts.slice(0, -1).join(", ")} or ${texts.at(-1)}`;

export const fixPod = (pod: Pod, offences: readonly PodSecurityViolation[]): void => {
  for (const offence of offences) fixes[offence.reason.replace(/profiles$/, "profile")]?.(toEditablePod(pod), offence);
};

/** A pod that a suggestion changes, and the parts of the pod that the changes need. */
interface EditablePod {
  pod: Pod;
  spec: PodSpec;
  /** The security contexts that the pod and its containers have. */
  contexts: AnyContext[];
  containers: readonly Container[];
}

const toEditablePod = (pod: Pod): EditablePod => {
  const { spec, containers } = toSubject(pod);
  const contexts = [spec, ...containers].flatMap(({ securityContext }) => (securityContext ? [securityContext] : []));
  return { pod, spec, contexts, containers };
};

/** The changes of a pod that make an offence disappear, by upstream's reason for the offence. */
const fixes: Record<string, (editable: EditablePod, offence: PodSecurityViolation) => void> = {
  "forbidden AppArmor profile": ({ pod, contexts }, { detail }) => {
    for (const context of contexts)
      if (context.appArmorProfile && !isAllowedProfile(context.appArmorProfile))
        context.appArmorProfile = runtimeDefault;
    deleteAnnotations(pod, "container.apparmor.security.beta.kubernetes.io/", detail);
  },
  "non-default capabilities": ({ contexts }, { detail }) =>
    deleteCapabilities(contexts, (name) => detail.includes(`"${name}"`)),
  "unrestricted capabilities": ({ containers, contexts }) => {
    deleteCapabilities(contexts, (name) => name !== "NET_BIND_SERVICE");
    for (const container of containers) {
      const { capabilities = {} } = getContext(container);
      if (!capabilities.drop?.includes("ALL"))
        container.securityContext = { ...container.securityContext, capabilities: { ...capabilities, drop: ["ALL"] } };
    }
  },
  "host namespaces": ({ spec }) => {
    delete spec.hostNetwork;
    delete spec.hostPID;
    delete spec.hostIPC;
  },
  "hostPath volumes": ({ spec }) => replaceVolumes(spec, ({ hostPath }) => hostPath !== undefined && hostPath !== null),
  hostPort: ({ containers }) => {
    for (const port of containers.flatMap(({ ports }) => ports ?? [])) delete port.hostPort;
  },
  "probe or lifecycle host": ({ containers }) => {
    for (const { livenessProbe, readinessProbe, startupProbe, lifecycle } of containers)
      for (const action of [livenessProbe, readinessProbe, startupProbe, lifecycle?.postStart, lifecycle?.preStop]) {
        delete action?.httpGet?.host;
        delete action?.tcpSocket?.host;
      }
  },
  privileged: ({ contexts }) => {
    for (const context of contexts) delete context.privileged;
  },
  procMount: ({ contexts }) => {
    for (const context of contexts) delete context.procMount;
  },
  seLinuxOptions: ({ contexts }) => {
    for (const { seLinuxOptions } of contexts) {
      delete seLinuxOptions?.user;
      delete seLinuxOptions?.role;
      delete seLinuxOptions?.type;
    }
  },
  seccompProfile: ({ pod, spec, contexts, containers }, { detail }) => {
    if (detail.startsWith("forbidden annotation")) return deleteAnnotations(pod, "", detail);
    for (const context of contexts)
      if (context.seccompProfile && !isAllowedProfile(context.seccompProfile)) context.seccompProfile = runtimeDefault;
    const lacksProfile =
      detail.startsWith("pod or ") || containers.some((container) => !getContext(container).seccompProfile);
    if (lacksProfile && !spec.securityContext?.seccompProfile)
      spec.securityContext = { ...spec.securityContext, seccompProfile: runtimeDefault };
  },
  "forbidden sysctls": ({ spec }, { detail }) => {
    const names = detail.split(", ");
    const { securityContext } = spec;
    const kept = securityContext?.sysctls?.filter(({ name }) => !names.includes(name));
    if (securityContext && kept?.length) securityContext.sysctls = kept;
    else delete securityContext?.sysctls;
  },
  hostProcess: ({ contexts }) => {
    for (const { windowsOptions } of contexts) delete windowsOptions?.hostProcess;
  },
  "allowPrivilegeEscalation != false": ({ containers }) => {
    for (const container of containers)
      if (getContext(container).allowPrivilegeEscalation !== false)
        container.securityContext = { ...container.securityContext, allowPrivilegeEscalation: false };
  },
  "restricted volume types": ({ spec }, { detail }) => replaceVolumes(spec, ({ name }) => detail.includes(`"${name}"`)),
  "runAsNonRoot != true": ({ spec, containers }) => {
    for (const container of containers)
      if (getContext(container).runAsNonRoot === false) delete container.securityContext?.runAsNonRoot;
    spec.securityContext = { ...spec.securityContext, runAsNonRoot: true };
  },
  "runAsUser=0": ({ contexts }) => {
    for (const context of contexts) if (context.runAsUser === 0) delete context.runAsUser;
  },
};

const runtimeDefault = { type: "RuntimeDefault" };

const deleteCapabilities = (contexts: readonly AnyContext[], isForbidden: (name: string) => boolean) => {
  for (const { capabilities } of contexts) {
    const kept = (capabilities?.add ?? []).filter((name) => !isForbidden(name));
    if (capabilities && kept.length > 0) capabilities.add = kept;
    else delete capabilities?.add;
  }
};

/** Deletes annotations whose key begins with a prefix and is in the detail of an offence. */
const deleteAnnotations = ({ metadata }: Pod, prefix: string, detail: string) => {
  for (const key of Object.keys(metadata?.annotations ?? {}))
    if (key.startsWith(prefix) && detail.includes(`${key}=`)) delete metadata?.annotations?.[key];
};

/** Replaces forbidden volumes by PersistentVolumeClaims. Mounts stay valid, and the pod waits until claims exist. */
const replaceVolumes = (spec: PodSpec, isForbidden: (volume: Volume) => boolean) => {
  spec.volumes = (spec.volumes ?? []).map((volume) =>
    isForbidden(volume) ? { name: volume.name, persistentVolumeClaim: { claimName: volume.name } } : volume,
  );
};
