import { lookUp, toList, toMap } from "postern/json";

// A SparkApplication has fields instead of Pod templates. Spark computes the requests of its Pods from these fields:
// https://github.com/kubeflow/spark-operator/tree/master/internal/scheduler/yunikorn/resourceusage

/**
 * The properties of sparkConf, such as `spark.executor.instances`, that set the number of Pods or their requests. They
 * are refused, because the rule reads only fields of the SparkApplication's spec, such as `executor.instances`.
 */
const refusedProperties =
  /^spark\.(dynamicAllocation\.(enabled|initialExecutors|maxExecutors)|executor\.(instances|minMemoryOverhead)|(kubernetes\.)?((driver|executor)\.)?(memory(Overhead(Factor)?)?|resource\..*|((request|limit)\.)?cores|podTemplateFile))$/i;

/** The least memory of a Pod besides the heap, in bytes. */
const leastOverhead = 384 * 2 ** 20;

/** Returns the bytes of a size in Java's notation: `512m` and `512` are 512 MiB, `1g` is 1 GiB, `100b` is 100 bytes. */
const parseSize = (text: unknown): bigint | undefined => {
  const [, digits, unit, isBytes] = /^([0-9]{1,15})(?:([kmgtp])i?b?|(b))?$/i.exec(String(text)) ?? [];
  if (digits === undefined) return undefined;
  return BigInt(digits) * (isBytes ? 1n : 2n ** BigInt(10 * (1 + "kmgtp".indexOf(unit?.toLowerCase() ?? "m"))));
};

/** Builds the Pod template of a SparkApplication's driver or executors; or returns why they can't be counted. */
export const buildSparkTemplate = (
  object: unknown,
  fields: Record<string, unknown>,
  place: readonly (string | number)[],
): object | string => {
  const app = toMap(lookUp(object, place.slice(0, -1))?.value);
  const specPath = place.slice(0, -1).join(".");
  const conf = toMap(app.sparkConf);
  const refusedProperty = Object.keys(conf).find((key) => refusedProperties.test(key));
  if (refusedProperty !== undefined)
    return `${specPath}.sparkConf must not set ${refusedProperty}; set the field of ${specPath} for it instead`;
  const { enabled, maxExecutors } = toMap(app.dynamicAllocation);
  if (enabled === true && maxExecutors == null)
    return `${specPath}.dynamicAllocation.maxExecutors must limit the number of executors`;

  const faults: string[] = [];
  const readSize = (value: unknown, name: string): bigint => {
    const size = parseSize(value);
    if (size === undefined)
      faults.push(`${name} must be a size such as 512m or 4g, not ${JSON.stringify(value ?? null)}`);
    return size ?? 0n;
  };
  const fieldsPath = place.join(".");
  const isJvm = ["Java", "Scala", undefined].some((type) => type === app.type);
  const factor = Number(app.memoryOverheadFactor ?? (isJvm ? 0.1 : 0.4));
  if (!(factor >= 0 && factor < 1000)) faults.push(`${specPath}.memoryOverheadFactor must be a number from 0`);
  const heap = readSize(fields.memory ?? "1g", `${fieldsPath}.memory`);
  const usualOverhead = faults.length > 0 ? 0 : Math.ceil(Math.max(Number(heap) * factor, leastOverhead));
  const overhead =
    fields.memoryOverhead == null
      ? BigInt(usualOverhead)
      : readSize(fields.memoryOverhead, `${fieldsPath}.memoryOverhead`);
  // If sparkConf sets these sizes, Spark adds them to the memory of executors.
  const addedMemory = ["spark.executor.pyspark.memory", "spark.memory.offHeap.size"]
    .filter((key) => place.at(-1) === "executor" && conf[key] != null)
    .reduce((sum, key) => sum + readSize(conf[key], `${specPath}.sparkConf ${key}`), 0n);
  const memory = `${heap + overhead + addedMemory}`;
  const { name: gpu, quantity } = toMap(fields.gpu);
  const gpus = gpu ? { [String(gpu)]: quantity ?? null } : {};
  const { coreRequest, cores, coreLimit, memoryLimit } = fields;
  const requests = { cpu: coreRequest ?? cores ?? 1, memory, ...gpus };
  const limits = {
    ...(coreLimit != null && { cpu: coreLimit }),
    memory: memoryLimit == null ? memory : `${readSize(memoryLimit, `${fieldsPath}.memoryLimit`)}`,
    ...gpus,
  };
  if (faults.length > 0) return faults.join("; ");

  const spec = toMap(toMap(fields.template).spec);
  // Spark runs in the template's first container, and sets its requests and limits.
  const [first, ...containers] = toList(spec.containers);
  const written = toMap(toMap(first).resources);
  const resources = {
    requests: { ...toMap(written.requests), ...requests },
    limits: { ...toMap(written.limits), ...limits },
  };
  return {
    spec: {
      ...spec,
      containers: [{ resources }, ...containers, ...toList(fields.sidecars)],
      initContainers: [...toList(spec.initContainers), ...toList(fields.initContainers)],
    },
  };
};
