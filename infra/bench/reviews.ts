/** Reviews to measure with, as an API server would send them: pods that grow by containers, then by structured data. */

/** The body of a review of a pod, of this many bytes within a few hundred. */
export const reviewOfPod = (bytes: number): string => {
  const pod = podWith(2);
  const review = reviewOf(pod);
  const length = () => JSON.stringify(review).length;

  while (length() < Math.min(bytes, longestPod)) pod.spec.containers.push(container(pod.spec.containers.length));
  const record = JSON.stringify(structured(0)).length;
  for (let missing = Math.floor((bytes - length()) / record); missing > 0; missing--)
    pod.spec.records.push(structured(missing));
  return JSON.stringify(review);
};

/** An HTTP API's event, payload 2.0, as Lambda hands it to a function. */
export const eventOf = (path: string, body: string) => {
  const host = "abcde12345.execute-api.eu-central-1.amazonaws.com";
  return {
    version: "2.0",
    routeKey: "POST /{cluster}/{rule}/{phase}",
    rawPath: path,
    rawQueryString: "timeout=10s",
    headers: {
      accept: "application/json, */*",
      "accept-encoding": "gzip",
      "content-length": String(body.length),
      "content-type": "application/json",
      host,
      "user-agent": "kube-apiserver-admission",
      "x-amzn-trace-id": "Root=1-68f0c0de-0123456789abcdef01234567",
      "x-forwarded-for": "198.51.100.7",
      "x-forwarded-port": "443",
      "x-forwarded-proto": "https",
    },
    queryStringParameters: { timeout: "10s" },
    requestContext: {
      accountId: "123456789012",
      apiId: "abcde12345",
      domainName: host,
      domainPrefix: "abcde12345",
      http: {
        method: "POST",
        path,
        protocol: "HTTP/1.1",
        sourceIp: "198.51.100.7",
        userAgent: "kube-apiserver-admission",
      },
      requestId: "Zm9vYmFyYmF6cXV4=",
      routeKey: "POST /{cluster}/{rule}/{phase}",
      stage: "$default",
      time: "16/Oct/2026:09:00:00 +0000",
      timeEpoch: 1792141200000,
    },
    body,
    isBase64Encoded: false,
  };
};

/** The most containers of a pod here: real pods don't have hundreds. */
const longestPod = 100_000;

const reviewOf = (object: object) => {
  const gvk = { group: "", version: "v1", kind: "Pod" };
  const gvr = { group: "", version: "v1", resource: "pods" };
  return {
    kind: "AdmissionReview",
    apiVersion: "admission.k8s.io/v1",
    request: {
      uid: "0df28fbd-5f5f-11e8-bc74-36e6bb280816",
      kind: gvk,
      resource: gvr,
      requestKind: gvk,
      requestResource: gvr,
      name: "shop-6d5f8b9c4-x7k2p",
      namespace: "shop",
      operation: "CREATE",
      userInfo: {
        username: "system:serviceaccount:kube-system:replicaset-controller",
        uid: "5b1d1b54-7a4e-4f7e-9d0b-1f5d1a6e2f11",
        groups: ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
      },
      object,
      oldObject: null,
      dryRun: false,
      options: { kind: "CreateOptions", apiVersion: "meta.k8s.io/v1" },
    },
  };
};

const podWith = (containers: number) => {
  return {
    kind: "Pod",
    apiVersion: "v1",
    metadata: {
      name: "shop-6d5f8b9c4-x7k2p",
      generateName: "shop-6d5f8b9c4-",
      namespace: "shop",
      creationTimestamp: null,
      labels: { app: "shop", "app.kubernetes.io/part-of": "storefront", "pod-template-hash": "6d5f8b9c4" },
      annotations: { "prometheus.io/scrape": "true", "prometheus.io/port": "9102" },
      ownerReferences: [
        {
          apiVersion: "apps/v1",
          kind: "ReplicaSet",
          name: "shop-6d5f8b9c4",
          uid: "8a1f0c1e-9a65-4c53-8a39-0c5a7c4ad0d2",
          controller: true,
          blockOwnerDeletion: true,
        },
      ],
      managedFields: [
        {
          manager: "kube-controller-manager",
          operation: "Update",
          apiVersion: "v1",
          time: "2026-10-16T09:00:00Z",
          fieldsType: "FieldsV1",
          fieldsV1: { "f:metadata": { "f:labels": { ".": {}, "f:app": {} } } },
        },
      ],
    },
    spec: {
      volumes: [{ name: "settings", configMap: { name: "shop", defaultMode: 420 } }],
      containers: Array.from({ length: containers }, (_, index) => container(index)),
      restartPolicy: "Always",
      terminationGracePeriodSeconds: 30,
      dnsPolicy: "ClusterFirst",
      serviceAccountName: "shop",
      securityContext: { runAsNonRoot: true, fsGroup: 2000 },
      schedulerName: "default-scheduler",
      enableServiceLinks: true,
      /** Unknown to Kubernetes: what stands for the bulk of a large custom resource. */
      records: [] as object[],
    },
    status: {},
  };
};

const container = (index: number) => {
  return {
    name: `part-${index}`,
    image: `registry.example.com/shop/part-${index}:1.${index}.0`,
    args: ["--listen=:8080", `--part=${index}`],
    ports: [{ name: "http", containerPort: 8080 + index, protocol: "TCP" }],
    env: [
      { name: "DATABASE_URL", valueFrom: { secretKeyRef: { name: "shop", key: "database-url" } } },
      { name: "POD_NAME", valueFrom: { fieldRef: { apiVersion: "v1", fieldPath: "metadata.name" } } },
      { name: "LOG_LEVEL", value: "info" },
      { name: "PART", value: String(index) },
    ],
    resources: { limits: { cpu: "500m", memory: "256Mi" }, requests: { cpu: "100m", memory: "128Mi" } },
    volumeMounts: [{ name: "settings", readOnly: true, mountPath: "/etc/shop" }],
    readinessProbe: {
      httpGet: { path: "/ready", port: "http", scheme: "HTTP" },
      periodSeconds: 10,
      failureThreshold: 3,
    },
    terminationMessagePath: "/dev/termination-log",
    terminationMessagePolicy: "File",
    imagePullPolicy: "IfNotPresent",
    securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
  };
};

const structured = (index: number) => {
  return {
    id: `record-${index}`,
    weight: index / 8,
    enabled: index % 2 === 0,
    owner: null,
    labels: { region: "eu-central-1", tier: "backend", [`shard-${index % 64}`]: "yes" },
    rules: [
      {
        from: { address: "198.51.100.7", port: 443 },
        to: [
          { service: "shop", port: 8080, weight: 90 },
          { service: "shop-next", port: 8080, weight: 10 },
        ],
      },
      { from: { address: "203.0.113.9", port: 80 }, to: [{ service: "shop", port: 8080, weight: 100 }] },
    ],
  };
};
