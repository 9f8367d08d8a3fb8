import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { Document, stringify } from "yaml";

/** Of each kind, so many of a hundred. */
const shares: [make: (name: string, namespace: string, number: number) => object, share: number][] = [
  [(name, namespace, number) => deployment("Deployment", name, namespace, number), 24],
  [(name, namespace, number) => pod(name, namespace, number), 20],
  [(name, namespace, number) => service(name, namespace, number), 14],
  [(name, namespace, number) => configMap(name, namespace, number), 16],
  [(name, namespace, number) => claim(name, namespace, number), 6],
  [(name, namespace, number) => ingress(name, namespace, number), 6],
  [(name, namespace, number) => deployment("StatefulSet", name, namespace, number), 4],
  [(name, namespace, number) => cronJob(name, namespace, number), 3],
  [(name, namespace) => account(name, namespace), 3],
  [(name, namespace) => networkPolicy(name, namespace), 2],
  [(name) => ({ apiVersion: "v1", kind: "Namespace", metadata: { name, labels: labelsOf(name) } }), 2],
];

/**
 * So many manifests as repositories hold them, of 1 to 5 KB but for the smallest kinds: an application's in one file or
 * in a file each, most of them YAML with comments, some JSON. Every number gives the same ones. Answers how many bytes.
 */
export const writeManifests = async (folder: string, count: number): Promise<number> => {
  const kinds = shares.flatMap(([make, share]) => Array.from({ length: share }, () => make));
  let bytes = 0;
  for (let number = 0, place = 0; number < count; place++) {
    const isTogether = place % 2 === 0;
    const size = Math.min(isTogether ? 8 : 1, count - number);
    const objects = Array.from({ length: size }, (_, step) => {
      // The share's numbers and a hundred have no common divisor with it.
      const make = kinds[((number + step) * 37) % kinds.length];
      return make?.(`app-${number + step}`, `team-${place % 50}`, number + step) ?? {};
    });
    const isJson = place % 10 === 9;
    const text = isJson ? `${JSON.stringify(objects[0], null, 2)}\n` : objects.map(written).join("---\n");
    const inner = join(folder, `team-${place % 50}`);
    if (place < 50) await mkdir(inner);
    await writeFile(join(inner, `app-${number}.${isJson ? "json" : "yaml"}`), text);
    bytes += Buffer.byteLength(text);
    number += size;
  }
  return bytes;
};

const written = (object: object): string => {
  const document = new Document(object, { aliasDuplicateObjects: false });
  document.commentBefore = " Kept by the team; see the handbook before you change it.";
  return stringify(document, { lineWidth: 0 });
};

const labelsOf = (name: string) => {
  return {
    "app.kubernetes.io/name": name,
    "app.kubernetes.io/part-of": "shop",
    "app.kubernetes.io/managed-by": "pipeline",
    "team.example.com/cost-centre": "4711",
  };
};

const metadataOf = (name: string, namespace: string) => {
  const annotations = { "example.com/contact": "shop@example.com", "example.com/runbook": `https://wiki/${name}` };
  return { name, namespace, labels: labelsOf(name), annotations };
};

const containerOf = (name: string, number: number) => {
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

const podSpecOf = (name: string, number: number) => {
  return {
    serviceAccountName: name,
    containers: [
      containerOf("main", number),
      ...(number % 4 === 0 ? [containerOf("proxy", number + 1)] : []),
      ...(number % 16 === 0 ? [{ ...containerOf("metrics", number), image: "registry.example.com/metrics:2" }] : []),
    ],
    ...(number % 5 === 0 && { tolerations: [{ key: "spot", operator: "Exists", effect: "NoSchedule" }] }),
    ...(number % 32 === 0 && { securityContext: { runAsUser: 1000 } }),
    volumes: [{ name: "settings", configMap: { name: `${name}-settings` } }],
  };
};

const templateOf = (name: string, number: number) => {
  return { metadata: { labels: labelsOf(name) }, spec: podSpecOf(name, number) };
};

const pod = (name: string, namespace: string, number: number) => {
  return { apiVersion: "v1", kind: "Pod", metadata: metadataOf(name, namespace), spec: podSpecOf(name, number) };
};

const deployment = (kind: "Deployment" | "StatefulSet", name: string, namespace: string, number: number) => {
  const selector = { matchLabels: { "app.kubernetes.io/name": name } };
  const own = kind === "StatefulSet" ? { serviceName: name } : {};
  const spec = { replicas: 1 + (number % 4), selector, ...own, template: templateOf(name, number) };
  return { apiVersion: "apps/v1", kind, metadata: metadataOf(name, namespace), spec };
};

const cronJob = (name: string, namespace: string, number: number) => {
  const template = templateOf(name, number);
  const spec = { ...template.spec, restartPolicy: "OnFailure" };
  return {
    apiVersion: "batch/v1",
    kind: "CronJob",
    metadata: metadataOf(name, namespace),
    spec: { schedule: "*/15 * * * *", jobTemplate: { spec: { template: { ...template, spec } } } },
  };
};

const service = (name: string, namespace: string, number: number) => {
  const ports = [
    { name: "http", port: 80, targetPort: "http" },
    { name: "metrics", port: 9090, targetPort: 9090 },
  ];
  const outside = number % 25 === 0 ? { externalIPs: ["192.0.2.7"] } : {};
  const spec = { selector: { "app.kubernetes.io/name": name }, ports, ...outside };
  return { apiVersion: "v1", kind: "Service", metadata: metadataOf(name, namespace), spec };
};

const configMap = (name: string, namespace: string, number: number) => {
  const lines = Array.from({ length: 8 + (number % 40) }, (_, index) => `setting.${index} = value ${index * number}`);
  const data = { "shop.properties": `# of ${name}\n${lines.join("\n")}\n`, level: "info", retries: "3" };
  return { apiVersion: "v1", kind: "ConfigMap", metadata: metadataOf(name, namespace), data };
};

const claim = (name: string, namespace: string, number: number) => {
  const resources = { requests: { storage: `${1 + (number % 100)}Gi` } };
  const spec = { accessModes: ["ReadWriteOnce"], storageClassName: "fast", resources };
  return { apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: metadataOf(name, namespace), spec };
};

const ingress = (name: string, namespace: string, number: number) => {
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
  return { apiVersion: "networking.k8s.io/v1", kind: "Ingress", metadata: metadataOf(name, namespace), spec };
};

const account = (name: string, namespace: string) => {
  return { apiVersion: "v1", kind: "ServiceAccount", metadata: metadataOf(name, namespace) };
};

const networkPolicy = (name: string, namespace: string) => {
  const podSelector = { matchLabels: { "app.kubernetes.io/name": name } };
  const from = [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "ingress" } } }];
  const ingress = [{ from, ports: [{ protocol: "TCP", port: 8080 }] }];
  const spec = { podSelector, policyTypes: ["Ingress"], ingress };
  return { apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata: metadataOf(name, namespace), spec };
};
