import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Document, stringify } from "yaml";

/** The generators of manifests. Of a hundred manifests, a generator makes as many as its share. */
const shares: [make: (name: string, namespace: string, number: number) => object, share: number][] = [
  [(name, namespace, number) => buildDeployment("Deployment", name, namespace, number), 24],
  [(name, namespace, number) => buildPod(name, namespace, number), 20],
  [(name, namespace, number) => buildService(name, namespace, number), 14],
  [(name, namespace, number) => buildConfigMap(name, namespace, number), 16],
  [(name, namespace, number) => buildClaim(name, namespace, number), 6],
  [(name, namespace, number) => buildIngress(name, namespace, number), 6],
  [(name, namespace, number) => buildDeployment("StatefulSet", name, namespace, number), 4],
  [(name, namespace, number) => buildCronJob(name, namespace, number), 3],
  [(name, namespace) => buildAccount(name, namespace), 3],
  [(name, namespace) => buildNetworkPolicy(name, namespace), 2],
  [(name) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name, labels: buildLabels(name) } }), 2],
];

/**
 * Writes `count` manifests, always the same ones, and returns the number of bytes. The manifests resemble those in
 * repositories: most have 1 to 5 KB. A file has one manifest or eight. Most files are YAML with comments, some are
 * JSON.
 */
export const writeManifestsAndCountBytes = async (folder: string, count: number): Promise<number> => {
  const kinds = shares.flatMap(([make, share]) => Array.from({ length: share }, () => make));
  let bytes = 0;
  for (let number = 0, fileIndex = 0; number < count; fileIndex++) {
    const hasSeveral = fileIndex % 2 === 0;
    const size = Math.min(hasSeveral ? 8 : 1, count - number);
    const objects = Array.from({ length: size }, (_, step) => {
      // Steps of 37 reach all 100 elements of `kinds`, because 37 and 100 have no common divisor.
      const createManifest = kinds[((number + step) * 37) % kinds.length];
      return createManifest?.(`app-${number + step}`, `team-${fileIndex % 50}`, number + step) ?? {};
    });
    const isJson = fileIndex % 10 === 9;
    const text = isJson ? `${JSON.stringify(objects[0], null, 2)}\n` : objects.map(toYaml).join("---\n");
    const inner = join(folder, `team-${fileIndex % 50}`);
    if (fileIndex < 50) await mkdir(inner);
    await writeFile(join(inner, `app-${number}.${isJson ? "json" : "yaml"}`), text);
    bytes += Buffer.byteLength(text);
    number += size;
  }
  return bytes;
};

const toYaml = (object: object): string => {
  const document = new Document(object, { aliasDuplicateObjects: false });
  document.commentBefore = " Kept by the team; see the handbook before you change it.";
  return stringify(document, { lineWidth: 0 });
};

const buildLabels = (name: string) => {
  return {
    "app.kubernetes.io/name": name,
    "app.kubernetes.io/part-of": "shop",
    "app.kubernetes.io/managed-by": "pipeline",
    "team.example.com/cost-centre": "4711",
  };
};

const buildMetadata = (name: string, namespace: string) => {
  const annotations = { "example.com/contact": "shop@example.com", "example.com/runbook": `https://wiki/${name}` };
  return { name, namespace, labels: buildLabels(name), annotations };
};

/** Builds a container. Different numbers make different images, numbers of variables, and resources. */
const buildContainer = (name: string, number: number) => {
  const probe = { httpGet: { path: "/healthz", port: "http" }, periodSeconds: 10, timeoutSeconds: 2 };
  return {
    name,
    image: `registry.k8s.io/shop/${name}:1.${number % 40}.${number % 7}`,
    args: ["--listen=:8080", `--name=${name}`, "--verbose"],
    env: [
      { name: "LOG_LEVEL", value: "info" },
      { name: "NODE_NAME", valueFrom: { fieldRef: { fieldPath: "spec.nodeName" } } },
      { name: "PASSWORD", valueFrom: { secretKeyRef: { name: "database", key: "password" } } },
      ...Array.from({ length: number % 9 }, (_, index) => {
        return { name: `OPTION_${index}`, value: `the value of option ${index} of ${name}` };
      }),
    ],
    ports: [{ name: "http", containerPort: 8080 }],
    readinessProbe: probe,
    livenessProbe: { ...probe, initialDelaySeconds: 15, failureThreshold: 5 },
    resources: {
      requests: { cpu: `${100 + (number % 10) * 50}m`, memory: "256Mi" },
      ...(number % 3 > 0 && { limits: { memory: "512Mi" } }),
    },
    securityContext: { allowPrivilegeEscalation: false, runAsNonRoot: true, capabilities: { drop: ["ALL"] } },
    volumeMounts: [{ name: "settings", mountPath: "/etc/shop", readOnly: true }],
  };
};

/** Builds the spec of a Pod: every fourth has a second container, every fifth a toleration. */
const buildPodSpec = (name: string, number: number) => {
  return {
    serviceAccountName: name,
    containers: [
      buildContainer("main", number),
      ...(number % 4 === 0 ? [buildContainer("proxy", number + 1)] : []),
      ...(number % 16 === 0 ? [{ ...buildContainer("metrics", number), image: "registry.example.com/metrics:2" }] : []),
    ],
    ...(number % 5 === 0 && { tolerations: [{ key: "spot", operator: "Exists", effect: "NoSchedule" }] }),
    ...(number % 32 === 0 && { securityContext: { runAsUser: 1000 } }),
    volumes: [{ name: "settings", configMap: { name: `${name}-settings` } }],
  };
};

const buildTemplate = (name: string, number: number) => {
  return { metadata: { labels: buildLabels(name) }, spec: buildPodSpec(name, number) };
};

const buildPod = (name: string, namespace: string, number: number) => {
  return { apiVersion: "v1", kind: "Pod", metadata: buildMetadata(name, namespace), spec: buildPodSpec(name, number) };
};

const buildDeployment = (kind: "Deployment" | "StatefulSet", name: string, namespace: string, number: number) => {
  const selector = { matchLabels: { "app.kubernetes.io/name": name } };
  const requiredFields = kind === "StatefulSet" ? { serviceName: name } : {};
  const spec = { replicas: 1 + (number % 4), selector, ...requiredFields, template: buildTemplate(name, number) };
  return { apiVersion: "apps/v1", kind, metadata: buildMetadata(name, namespace), spec };
};

const buildCronJob = (name: string, namespace: string, number: number) => {
  const template = buildTemplate(name, number);
  const spec = { ...template.spec, restartPolicy: "OnFailure" };
  return {
    apiVersion: "batch/v1",
    kind: "CronJob",
    metadata: buildMetadata(name, namespace),
    spec: { schedule: "*/15 * * * *", jobTemplate: { spec: { template: { ...template, spec } } } },
  };
};

const buildService = (name: string, namespace: string, number: number) => {
  const ports = [
    { name: "http", port: 80, targetPort: "http" },
    { name: "metrics", port: 9090, targetPort: 9090 },
  ];
  const externalIPs = number % 25 === 0 ? { externalIPs: ["192.0.2.7"] } : {};
  const spec = { selector: { "app.kubernetes.io/name": name }, ports, ...externalIPs };
  return { apiVersion: "v1", kind: "Service", metadata: buildMetadata(name, namespace), spec };
};

const buildConfigMap = (name: string, namespace: string, number: number) => {
  const lines = Array.from({ length: 8 + (number % 40) }, (_, index) => `setting.${index} = value ${index * number}`);
  const data = { "shop.properties": `# of ${name}\n${lines.join("\n")}\n`, level: "info", retries: "3" };
  return { apiVersion: "v1", kind: "ConfigMap", metadata: buildMetadata(name, namespace), data };
};

const buildClaim = (name: string, namespace: string, number: number) => {
  const resources = { requests: { storage: `${1 + (number % 100)}Gi` } };
  const spec = { accessModes: ["ReadWriteOnce"], storageClassName: "fast", resources };
  return { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: buildMetadata(name, namespace), spec };
};

const buildIngress = (name: string, namespace: string, number: number) => {
  const paths = Array.from({ length: 1 + (number % 6) }, (_, index) => {
    const backend = { service: { name, port: { name: "http" } } };
    return { path: `/${name}/${index}`, pathType: "Prefix", backend };
  });
  const host = `${name}.shop.example.com`;
  const spec = {
    ingressClassName: "nginx",
    tls: [{ hosts: [host], secretName: name }],
    rules: [{ host, http: { paths } }],
  };
  return { apiVersion: "networking.k8s.io/v1", kind: "Ingress", metadata: buildMetadata(name, namespace), spec };
};

const buildAccount = (name: string, namespace: string) => {
  return { apiVersion: "v1", kind: "ServiceAccount", metadata: buildMetadata(name, namespace) };
};

const buildNetworkPolicy = (name: string, namespace: string) => {
  const podSelector = { matchLabels: { "app.kubernetes.io/name": name } };
  const from = [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "ingress" } } }];
  const ingress = [{ from, ports: [{ protocol: "TCP", port: 8080 }] }];
  const spec = { podSelector, policyTypes: ["Ingress"], ingress };
  return { apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata: buildMetadata(name, namespace), spec };
};
