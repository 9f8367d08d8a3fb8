import { isSourceless } from "postern/objects/pod";
import {
  chooseSingularOrPlural,
  formatQuotedNames,
  type PodSecurityCheck,
  type PodSecurityCheckFunction,
  quoteAll,
  sortUnique,
} from "./check-builders.ts";

const checkNamespaces: PodSecurityCheckFunction = ({ spec }) => {
  const shared = (["hostNetwork", "hostPID", "hostIPC"] as const).filter((field) => spec[field] === true);
  if (shared.length > 0)
    return { reason: "host namespaces", detail: shared.map((field) => `${field}=true`).join(", ") };
};
export const hostNamespaces: PodSecurityCheck = { level: "baseline", since: { "1.0": checkNamespaces } };

const checkHostPaths: PodSecurityCheckFunction = ({ spec }) => {
  const names = (spec.volumes ?? []).filter(({ hostPath }) => hostPath).map(({ name = "" }) => name);
  if (names.length > 0) return { reason: "hostPath volumes", detail: formatQuotedNames("volume", names) };
};
export const hostPathVolumes: PodSecurityCheck = { level: "baseline", since: { "1.0": checkHostPaths } };

const allowed = "configMap csi downwardAPI emptyDir ephemeral image persistentVolumeClaim projected secret".split(" ");

const forbidden = (
  "hostPath gcePersistentDisk awsElasticBlockStore gitRepo nfs iscsi glusterfs rbd flexVolume cinder " +
  "cephfs flocker fc azureFile vsphereVolume quobyte azureDisk photonPersistentDisk portworxVolume scaleIO " +
  "storageos"
).split(" ");

const checkVolumes: PodSecurityCheckFunction = ({ spec }) => {
  const volumes = (spec.volumes ?? []).filter(
    (volume) => !isSourceless(volume) && !allowed.some((source) => Reflect.get(volume, source)),
  );
  if (volumes.length === 0) return undefined;

  const names = volumes.map(({ name = "" }) => name);
  const types = sortUnique(
    volumes.map((volume) => forbidden.find((source) => Reflect.get(volume, source)) ?? "unknown"),
  );
  const use = chooseSingularOrPlural(volumes.length, "uses", "use");
  return {
    reason: "restricted volume types",
    detail: `${formatQuotedNames("volume", names)} ${use} ${chooseSingularOrPlural(types.length, "restricted volume type")} ${quoteAll(types)}`,
  };
};

/** The check of volume types at level restricted; it includes the baseline check of hostPath volumes. */
export const restrictedVolumes: PodSecurityCheck = {
  level: "restricted",
  since: { "1.0": checkVolumes },
  insteadOf: hostPathVolumes,
};

const buildSysctlCheck = (...names: string[]): PodSecurityCheckFunction => {
  const allowed = new Set(names);
  return ({ spec }) => {
    const forbidden = (spec.securityContext?.sysctls ?? [])
      .map(({ name = "" }) => name)
      .filter((name) => !allowed.has(name));
    if (forbidden.length > 0) return { reason: "forbidden sysctls", detail: forbidden.join(", ") };
  };
};
const since0 = (
  "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.ip_unprivileged_port_start " +
  "net.ipv4.ping_group_range net.ipv4.tcp_syncookies"
).split(" ");
const since27 = [...since0, "net.ipv4.ip_local_reserved_ports"];
const keepalive = ["intvl", "probes", "time"].map((name) => `net.ipv4.tcp_keepalive_${name}`);
const since29 = [...since27, "net.ipv4.tcp_fin_timeout", ...keepalive];
const since32 = [...since29, "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
const since37 = [...since32, "net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"];

export const sysctls: PodSecurityCheck = {
  level: "baseline",
  since: {
    "1.0": buildSysctlCheck(...since0),
    "1.27": buildSysctlCheck(...since27),
    "1.29": buildSysctlCheck(...since29),
    "1.32": buildSysctlCheck(...since32),
    "1.37": buildSysctlCheck(...since37),
  },
};
