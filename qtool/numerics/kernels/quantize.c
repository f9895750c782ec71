/* The kernels of statistics.py, normalize.py, fake_quantize.py and bits.py for float32 and bfloat16 on the CPU.
 *
 * Each is bit for bit what the ATen ops in those files compute; they are the definition. Compiled with
 * -ffp-contract=off: a product and a sum are two roundings. Nothing depends on the number of threads.
 *
 * Tensors are dense and seen in memory order. A parameter per channel is one of `channels`, each for `inner` elements
 * in a row; where inner is 1 the caller repeats the parameters until a vector loop pays.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    BLOCK = 2048, /* elements done at a time: all buffers of a thread fit its first-level cache */
    FAN_IN = 16,  /* as in ordered_sum.py */
    CHUNK = FAN_IN * FAN_IN,
    FLOAT32 = 0,
    BFLOAT16 = 1,
};

typedef struct {
    float low, high;
    int32_t has_low, has_high;
} Bounds;

typedef struct {
    const float *scale;
    const int32_t *zero_point;
    int64_t channels, inner;
    float qmin, qmax;
} Grid;

typedef struct {
    const void *values; /* of dtype */
    const void *addend; /* likewise, or NULL */
    const float *factor, *shift; /* or NULL */
    int64_t channels, inner;
    int64_t count;
    int32_t dtype;
} Input;

typedef struct {
    void *values;  /* may be the input's */
    uint8_t *codes; /* or NULL; the bytes of int8 codes too */
    uint8_t *bits;  /* or NULL */
    float *range;   /* low, high */
    int64_t blocked;
    int32_t has_nan;
} Output;

INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- elements ---- */

INLINE float from_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return value == value ? (uint16_t)rounded : 0x7fc0;
}

INLINE float clamped(float y, float low, float high) { /* NaN stays */
    y = y < low ? low : y;
    return y > high ? high : y;
}

INLINE float to_step(float y, float inverse, float zero_point) { return rintf(y * inverse) + zero_point; }

/* ---- where the gradient passes ---- */

INLINE int inside(float y, Bounds bounds) {
    return (y == y) & ((y > bounds.low) | !bounds.has_low) & ((y < bounds.high) | !bounds.has_high);
}

typedef struct {
    float low, high; /* both included */
} Interval;

/* The float of an index that orders them all: -infinity to infinity, the zeros beside each other. */
INLINE float float_at(int64_t index) {
    const uint32_t bits = index >= 0 ? (uint32_t)index : (uint32_t)(-1 - index) | 0x80000000u;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Whether y lies above the low end (side -1) or below the high end (side 1) of what passes. */
static int passes_end(float y, int side, const Grid *grid, Bounds bounds) {
    const int on = side < 0 ? (y > bounds.low) | !bounds.has_low : (y < bounds.high) | !bounds.has_high;
    if (!grid->scale)
        return on;
    const float code = to_step(clamped(y, bounds.low, bounds.high), 1.0f / *grid->scale, (float)*grid->zero_point);
    return on & (side < 0 ? code >= grid->qmin : code <= grid->qmax);
}

/* Where the gradient passes for a grid of one scale, or without one. Each step from a value to its code keeps the order
 * of values, so it is an interval; each end of it is looked for among all floats, halving them. */
static Interval passing_interval(const Grid *grid, Bounds bounds) {
    const int64_t infinity = 0x7f800000, beyond = infinity + 1;
    int64_t low = -beyond, high = beyond; /* the first that passes the low end */
    while (low < high) {
        const int64_t middle = (low + high) >> 1;
        if (passes_end(float_at(middle), -1, grid, bounds))
            high = middle;
        else
            low = middle + 1;
    }
    const int64_t first = low;
    low = -beyond - 1, high = infinity; /* the last that passes the high end */
    while (low < high) {
        const int64_t middle = (low + high + 1) >> 1;
        if (passes_end(float_at(middle), 1, grid, bounds))
            low = middle;
        else
            high = middle - 1;
    }
    if (first > low)
        return (Interval){INFINITY, -INFINITY};
    return (Interval){float_at(first), float_at(low)};
}

/* ---- where a run of elements with parameters side by side (step 1) or shared (step 0) ends ---- */

typedef struct {
    int64_t index, length, left; /* `left` of the elements asked for, this run included */
    int step;
} Run;

INLINE Run first_run(int64_t position, int64_t left, int64_t channels, int64_t inner) {
    if (inner == 1) {
        const int64_t index = position % channels;
        return (Run){index, smaller(channels - index, left), left, 1};
    }
    const int64_t row = position / inner;
    return (Run){row % channels, smaller(inner - (position - row * inner), left), left, 0};
}

/* Of length 0 at the end. No division: where a run is short, one would take as long as the run. */
INLINE Run next_run(Run run, int64_t channels, int64_t inner) {
    const int64_t left = run.left - run.length;
    if (run.step)
        return (Run){0, smaller(channels, left), left, 1};
    return (Run){run.index + 1 < channels ? run.index + 1 : 0, smaller(inner, left), left, 0};
}

/* ---- spans: one loop each over elements of one run ---- */

/* `y` may be `x`. */
INLINE void affine_span(const float *x, float *y, int64_t length, const float *factor, const float *shift,
                        const int step, Bounds bounds) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++)
        y[i] = clamped(x[i] * factor[i * step] + shift[i * step], bounds.low, bounds.high);
}

INLINE void grid_span(const float *restrict y, float *restrict values, uint8_t *restrict codes,
                      uint8_t *restrict pass, int64_t length, const float *scale, const int32_t *zero_point,
                      const int step, float qmin, float qmax, Bounds bounds) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const float zero = (float)zero_point[i * step];
        const float wanted = to_step(y[i], 1.0f / scale[i * step], zero);
        const float got = clamped(wanted, qmin, qmax);
        values[i] = (got - zero) * scale[i * step];
        codes[i] = (uint8_t)(int32_t)got;
        pass[i] = (uint8_t)((wanted == got) & inside(y[i], bounds));
    }
}

/* With one scale for all, what passes is an interval. */
INLINE void one_scale_span(const float *restrict y, float *restrict values, uint8_t *restrict codes,
                           uint8_t *restrict pass, int64_t length, const Grid *grid, Interval passing,
                           const int wants_pass) {
    const float scale = *grid->scale, inverse = 1.0f / scale, zero = (float)*grid->zero_point;
    const float qmin = grid->qmin, qmax = grid->qmax;
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const float got = clamped(to_step(y[i], inverse, zero), qmin, qmax);
        values[i] = (got - zero) * scale;
        codes[i] = (uint8_t)(int32_t)got;
        if (wants_pass)
            pass[i] = (uint8_t)((y[i] >= passing.low) & (y[i] <= passing.high));
    }
}

/* The gradient where y passes, else 0. */
INLINE float passed(float x, float grad, float factor, float shift, Interval passing) {
    const float y = x * factor + shift;
    return (y >= passing.low) & (y <= passing.high) ? grad : 0.0f;
}

INLINE void passing_span(const float *x, const float *grad, float *restrict g, int64_t length, const float *factor,
                         const float *shift, const int step, Interval passing) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++)
        g[i] = passed(x[i], grad[i], factor[i * step], shift[i * step], passing);
}

/* ---- blocks ---- */

typedef struct {
    float low, high;
    int has_nan;
} Tally;

INLINE void widen(const void *source, int64_t position, float *restrict wide, int64_t length, int dtype) {
    if (dtype == FLOAT32) {
        memcpy(wide, (const float *)source + position, sizeof(float) * length);
        return;
    }
    const uint16_t *halves = (const uint16_t *)source + position;
#pragma omp simd
    for (int64_t i = 0; i < length; i++)
        wide[i] = from_bfloat16(halves[i]);
}

/* The block's values after sum or affine and activation: in `y`, or where they lie already. */
static const float *load_block(const Input *in, const void *out, Bounds bounds, int64_t position, int64_t length,
                               float *y) {
    const float *x = (const float *)in->values + position;
    const int is_bounded = bounds.has_low || bounds.has_high;
    if (in->dtype != FLOAT32) {
        widen(in->values, position, y, length, in->dtype);
        x = y;
    }
    if (in->factor) {
        int64_t done = 0;
        for (Run run = first_run(position, length, in->channels, in->inner); run.length;
             run = next_run(run, in->channels, in->inner)) {
            const float *factor = in->factor + run.index, *shift = in->shift + run.index;
            if (run.step)
                affine_span(x + done, y + done, run.length, factor, shift, 1, bounds);
            else
                affine_span(x + done, y + done, run.length, factor, shift, 0, bounds);
            done += run.length;
        }
        return y;
    }
    if (in->addend) {
        float addend[BLOCK];
        widen(in->addend, position, addend, length, in->dtype);
#pragma omp simd
        for (int64_t i = 0; i < length; i++)
            y[i] = clamped(x[i] + addend[i], bounds.low, bounds.high);
        return y;
    }
    if (!is_bounded && in->dtype == FLOAT32 && in->values != out)
        return x;
#pragma omp simd
    for (int64_t i = 0; i < length; i++)
        y[i] = clamped(x[i], bounds.low, bounds.high);
    return y;
}

static void add_range(const float *restrict y, int64_t length, Tally *tally) {
    float low = tally->low, high = tally->high;
    int has_nan = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(| : has_nan)
    for (int64_t i = 0; i < length; i++) {
        low = y[i] < low ? y[i] : low;
        high = y[i] > high ? y[i] : high;
        has_nan |= y[i] != y[i];
    }
    tally->low = low;
    tally->high = high;
    tally->has_nan |= has_nan;
}

static void quantize_block(const float *restrict y, float *restrict values, uint8_t *restrict codes,
                           uint8_t *restrict pass, int64_t position, int64_t length, const Grid *grid, Bounds bounds,
                           Interval passing, int wants_pass) {
    if (!grid->scale) {
#pragma omp simd
        for (int64_t i = 0; i < length; i++) {
            values[i] = y[i];
            pass[i] = (uint8_t)inside(y[i], bounds);
        }
        return;
    }
    if (grid->channels == 1) {
        if (wants_pass)
            one_scale_span(y, values, codes, pass, length, grid, passing, 1);
        else
            one_scale_span(y, values, codes, pass, length, grid, passing, 0);
        return;
    }
    int64_t done = 0;
    for (Run run = first_run(position, length, grid->channels, grid->inner); run.length;
         run = next_run(run, grid->channels, grid->inner)) {
        const float *scale = grid->scale + run.index;
        const int32_t *zero = grid->zero_point + run.index;
        if (run.step)
            grid_span(y + done, values + done, codes + done, pass + done, run.length, scale, zero, 1, grid->qmin,
                      grid->qmax, bounds);
        else
            grid_span(y + done, values + done, codes + done, pass + done, run.length, scale, zero, 0, grid->qmin,
                      grid->qmax, bounds);
        done += run.length;
    }
}

/* Bit k of byte i is element 8 * i + k; returns how many are set. `pass` has room for seven more. */
static int64_t pack_block(uint8_t *restrict pass, int64_t length, uint8_t *restrict bits) {
    int64_t passing = 0;
    memset(pass + length, 0, 7);
    for (int64_t i = 0; i < (length + 7) / 8; i++) {
        uint64_t eight;
        memcpy(&eight, pass + 8 * i, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        eight = __builtin_bswap64(eight);
#endif
        bits[i] = (uint8_t)(eight * 0x0102040810204080u >> 56);
        passing += (int64_t)(eight * 0x0101010101010101u >> 56);
    }
    return passing;
}

/* ---- quantize_values, normalize_quantize ---- */

void qtool_quantize(const Input *in, Bounds bounds, const Grid *grid, Output *out, int threads) {
    const int64_t blocks = (in->count + BLOCK - 1) / BLOCK;
    const int is_single = !grid->scale || grid->channels == 1;
    const Interval interval = is_single ? passing_interval(grid, bounds) : (Interval){0};
    float low = INFINITY, high = -INFINITY;
    int has_nan = 0;
    int64_t passing = 0;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1) reduction(min : low) \
    reduction(max : high) reduction(| : has_nan) reduction(+ : passing)
    for (int64_t block = 0; block < blocks; block++) {
        float wide[BLOCK], narrow[BLOCK];
        uint8_t unwanted[BLOCK], pass[BLOCK + 7];
        const int64_t position = block * BLOCK, length = smaller(BLOCK, in->count - position);
        Tally tally = {INFINITY, -INFINITY, 0};
        const float *y = load_block(in, out->values, bounds, position, length, wide);
        add_range(y, length, &tally);
        float *values = in->dtype == FLOAT32 ? (float *)out->values + position : narrow;
        uint8_t *codes = out->codes ? out->codes + position : unwanted;
        quantize_block(y, values, codes, pass, position, length, grid, bounds, interval, out->bits != NULL);
        if (in->dtype == BFLOAT16) {
            uint16_t *halves = (uint16_t *)out->values + position;
#pragma omp simd
            for (int64_t i = 0; i < length; i++)
                halves[i] = to_bfloat16(narrow[i]);
        }
        if (out->bits)
            passing += pack_block(pass, length, out->bits + position / 8);
        low = tally.low < low ? tally.low : low;
        high = tally.high > high ? tally.high : high;
        has_nan |= tally.has_nan;
    }
    out->range[0] = has_nan ? NAN : low;
    out->range[1] = has_nan ? NAN : high;
    out->blocked = in->count - passing;
    out->has_nan = has_nan;
}

/* ---- decode ---- */

INLINE void decode_span(const uint8_t *restrict codes, float *restrict values, int64_t length, const float *scale,
                        const int32_t *zero_point, const int step, const int is_signed) {
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const int32_t code = is_signed ? (int32_t)(int8_t)codes[i] : (int32_t)codes[i];
        values[i] = ((float)code - (float)zero_point[i * step]) * scale[i * step];
    }
}

void qtool_decode(const uint8_t *codes, int is_signed, const Grid *grid, void *values, int dtype, int64_t count,
                  int threads) {
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; block++) {
        float narrow[BLOCK];
        const int64_t position = block * BLOCK, length = smaller(BLOCK, count - position);
        float *wide = dtype == FLOAT32 ? (float *)values + position : narrow;
        int64_t done = 0;
        for (Run run = first_run(position, length, grid->channels, grid->inner); run.length;
             run = next_run(run, grid->channels, grid->inner)) {
            const float *scale = grid->scale + run.index;
            const int32_t *zero = grid->zero_point + run.index;
            const uint8_t *from = codes + position + done;
            if (run.step && is_signed)
                decode_span(from, wide + done, run.length, scale, zero, 1, 1);
            else if (run.step)
                decode_span(from, wide + done, run.length, scale, zero, 1, 0);
            else if (is_signed)
                decode_span(from, wide + done, run.length, scale, zero, 0, 1);
            else
                decode_span(from, wide + done, run.length, scale, zero, 0, 0);
            done += run.length;
        }
        if (dtype == BFLOAT16) {
            uint16_t *halves = (uint16_t *)values + position;
#pragma omp simd
            for (int64_t i = 0; i < length; i++)
                halves[i] = to_bfloat16(narrow[i]);
        }
    }
}

/* ---- masks ---- */

#define SELECT(name, word)                                                                                             \
    static void name(const word *restrict grad, word *restrict passing, const uint8_t *restrict bits, int64_t count) { \
        typedef word Eight __attribute__((vector_size(8 * sizeof(word))));                                             \
        const Eight places = {1, 2, 4, 8, 16, 32, 64, 128};                                                            \
        for (int64_t i = 0; i < count / 8; i++) {                                                                      \
            Eight kept;                                                                                                \
            memcpy(&kept, grad + 8 * i, sizeof kept);                                                                  \
            kept &= (Eight)((places & (word)bits[i]) != 0);                                                            \
            memcpy(passing + 8 * i, &kept, sizeof kept);                                                               \
        }                                                                                                              \
        for (int64_t i = count / 8 * 8; i < count; i++)                                                                \
            passing[i] = bits[i / 8] >> (i % 8) & 1 ? grad[i] : 0;                                                     \
    }
SELECT(select16, uint16_t)
SELECT(select32, uint32_t)
SELECT(select64, uint64_t)

/* Where a bit is 0, so are all bits of the element: +0 in every float format. */
void qtool_select(const char *grad, char *passing, const uint8_t *bits, int64_t count, int item_bytes, int threads) {
    const int64_t blocks = (count + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t position = block * BLOCK, length = smaller(BLOCK, count - position);
        const void *from = grad + position * item_bytes;
        void *to = passing + position * item_bytes;
        if (item_bytes == 2)
            select16(from, to, bits + position / 8, length);
        else if (item_bytes == 4)
            select32(from, to, bits + position / 8, length);
        else
            select64(from, to, bits + position / 8, length);
    }
}

/* Writes the indices of the bits that are 0; the caller knows how many there are. */
void qtool_blocked_indices(const uint8_t *bits, int64_t count, void *indices, int is_long) {
    int64_t found = 0;
    for (int64_t i = 0; i < (count + 7) / 8; i++) {
        uint64_t eight = 0;
        if (i % 8 == 0 && i + 8 <= count / 8)
            memcpy(&eight, bits + i, 8);
        if (eight == UINT64_MAX) { /* mostly */
            i += 7;
            continue;
        }
        if (bits[i] == 0xff)
            continue;
        for (int64_t k = 8 * i; k < smaller(8 * i + 8, count); k++) {
            if (bits[i] >> (k % 8) & 1)
                continue;
            if (is_long)
                ((int64_t *)indices)[found++] = k;
            else
                ((int32_t *)indices)[found++] = (int32_t)k;
        }
    }
}

/* ---- sums in the order of ordered_sum.py ---- */

typedef double Four __attribute__((vector_size(32)));

typedef int Ints __attribute__((vector_size(32)));
typedef float Floats __attribute__((vector_size(32)));

typedef struct {
    Four total[4], product[4]; /* of 16 lanes */
} Lanes;

INLINE Four four_at(const float *x) { /* as a loop: compilers convert it in one instruction */
    double wide[4];
    Four four;
    for (int i = 0; i < 4; i++)
        wide[i] = (double)x[i];
    memcpy(&four, wide, sizeof four);
    return four;
}

/* Add rows of 16 lanes: of g and of g * x. */
INLINE void add_rows(Lanes *lanes, const float *g, const float *x, int64_t rows) {
    Lanes sums = *lanes;
    for (int64_t row = 0; row < rows; row++) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            const Four wide_g = four_at(g + 16 * row + 4 * k);
            sums.total[k] += wide_g;
            sums.product[k] += wide_g * four_at(x + 16 * row + 4 * k); /* exact: one rounding, the sum's */
        }
    }
    *lanes = sums;
}

INLINE Floats chosen(Ints mask, Floats yes, Floats no) { return (Floats)((mask & (Ints)yes) | (~mask & (Ints)no)); }

/* Bring the range of each of 16 lanes up to date; NaN changes nothing. */
INLINE void widen_range(const float *x, int64_t rows, float *low, float *high) {
#pragma GCC unroll 2
    for (int k = 0; k < FAN_IN; k += 8) {
        Floats lowest, highest, eight;
        memcpy(&lowest, low + k, sizeof lowest);
        memcpy(&highest, high + k, sizeof highest);
        for (int64_t row = 0; row < rows; row++) {
            memcpy(&eight, x + FAN_IN * row + k, sizeof eight);
            lowest = chosen(eight < lowest, eight, lowest);
            highest = chosen(eight > highest, eight, highest);
        }
        memcpy(low + k, &lowest, sizeof lowest);
        memcpy(high + k, &highest, sizeof highest);
    }
}

/* Leave in items[0] the sum of `count` items of `width`; 0 of none. */
static void fold(double *items, int64_t count, int64_t width) {
    if (count == 0)
        memset(items, 0, sizeof(double) * width);
    while (count > 1) {
        const int64_t groups = (count + FAN_IN - 1) / FAN_IN;
        for (int64_t group = 0; group < groups; group++) {
            double *into = items + group * width; /* no group after this one begins before it */
            const double *from = items + group * FAN_IN * width;
            const int64_t members = smaller(FAN_IN, count - group * FAN_IN);
#pragma omp simd
            for (int64_t i = 0; i < width; i++)
                into[i] = 0.0 + from[i];
            for (int64_t member = 1; member < members; member++) {
#pragma omp simd
                for (int64_t i = 0; i < width; i++)
                    into[i] += from[member * width + i];
            }
        }
        count = groups;
    }
}

static double across_lanes(const double *lanes) {
    Four v[4];
    memcpy(v, lanes, sizeof v);
    const Four four = (v[0] + v[2]) + (v[1] + v[3]); /* by 8, by 4 */
    return (four[0] + four[2]) + (four[1] + four[3]);
}

typedef struct {
    const float *x, *grad; /* without grad: the sums of x and x * x, and the range of x */
    const float *factor, *shift;
    int64_t batch, channels, plane; /* planes (N, C, S) */
    int64_t rows, tile;             /* rows (R, C); factor and shift hold `tile` rows of parameters */
} Channels;

typedef struct {
    double *total, *product; /* (C,) */
    float *low, *high;       /* (C,), or NULL: a tensor of no elements has no address, so `grad` cannot say it */
} Sums;

/* A NaN among the values makes the sum NaN; so do infinities of both signs, and then it has to be looked for. */
static void settle_range(const Channels *in, Sums *out) {
    const int64_t channels = in->channels;
    for (int64_t c = 0; c < channels; c++) {
        if (out->total[c] == out->total[c])
            continue;
        const int64_t images = in->rows ? in->rows : in->batch, plane = in->rows ? 1 : in->plane;
        for (int64_t n = 0; n < images; n++)
            for (int64_t s = 0; s < plane; s++)
                if (isnan(in->x[(n * channels + c) * plane + s]))
                    out->low[c] = out->high[c] = NAN;
    }
}

/* The sums of one plane; `lanes` has room for 16 doubles a chunk, twice. */
INLINE void sum_plane(const Channels *in, int64_t index, Interval passing, double *lanes, double *total,
                      double *product, float *low, float *high, const int has_grad) {
    const int64_t plane = in->plane, chunks = (plane + CHUNK - 1) / CHUNK, channel = index % in->channels;
    double *products = lanes + chunks * FAN_IN;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const int64_t start = chunk * CHUNK, length = smaller(CHUNK, plane - start);
        const int64_t rows = length / FAN_IN, rest = length % FAN_IN;
        const float *x = in->x + index * plane + start, *weight = x;
        float g[CHUNK];
        Lanes sums = {{{0}}, {{0}}};
        if (has_grad) {
            const float *grad = in->grad + index * plane + start;
            passing_span(x, grad, g, length, in->factor + channel, in->shift + channel, 0, passing);
            weight = g;
        } else {
            widen_range(x, rows, low, high);
        }
        add_rows(&sums, weight, x, rows);
        if (rest) {
            float last[FAN_IN] = {0}, last_weight[FAN_IN] = {0};
            memcpy(last, x + rows * FAN_IN, sizeof(float) * rest);
            memcpy(last_weight, weight + rows * FAN_IN, sizeof(float) * rest);
            add_rows(&sums, last_weight, last, 1);
            for (int64_t i = 0; i < rest && !has_grad; i++) {
                low[i] = last[i] < low[i] ? last[i] : low[i];
                high[i] = last[i] > high[i] ? last[i] : high[i];
            }
        }
        memcpy(lanes + chunk * FAN_IN, sums.total, sizeof sums.total);
        memcpy(products + chunk * FAN_IN, sums.product, sizeof sums.product);
    }
    fold(lanes, chunks, FAN_IN);
    fold(products, chunks, FAN_IN);
    *total = across_lanes(lanes);
    *product = across_lanes(products);
}

static void fill_range(float *low, float *high, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        low[i] = INFINITY;
        high[i] = -INFINITY;
    }
}

/* Bring the range of each channel up to date with that of its lanes. */
static void merge_range(Sums *out, const float *low, const float *high, int64_t channels, int64_t lanes) {
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = c * lanes; i < (c + 1) * lanes; i++) {
            out->low[c] = low[i] < out->low[c] ? low[i] : out->low[c];
            out->high[c] = high[i] > out->high[c] ? high[i] : out->high[c];
        }
}

/* Returns 0, or 1 where there is no memory. */
int qtool_plane_sums(const Channels *in, Bounds bounds, const Grid *grid, Sums *out, int threads) {
    const int64_t planes = in->batch * in->channels, room = (in->plane / CHUNK + 1) * FAN_IN * 2;
    const int64_t places = planes + in->channels; /* sums of no images need their place too */
    const int64_t ranges = out->low ? in->channels * FAN_IN : 0; /* a range for each lane: no loop has to join them */
    const Interval passing = passing_interval(grid, bounds);
    double *totals = malloc(sizeof(double) * (places + 1) * 2), *products = totals + places;
    int failed = !totals;
    if (out->low)
        fill_range(out->low, out->high, in->channels);
    if (!failed) {
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : failed)
        {
            double *lanes = malloc(sizeof(double) * room);
            float *low = malloc(sizeof(float) * (ranges + 1) * 2), *high = low + ranges;
            failed = !lanes || !low;
            if (!failed)
                fill_range(low, high, ranges);
#pragma omp for schedule(static)
            for (int64_t i = 0; i < planes; i++) {
                const int64_t range = i % in->channels * FAN_IN;
                if (failed)
                    continue;
                if (out->low)
                    sum_plane(in, i, passing, lanes, totals + i, products + i, low + range, high + range, 0);
                else
                    sum_plane(in, i, passing, lanes, totals + i, products + i, NULL, NULL, 1);
            }
#pragma omp critical
            if (!failed && out->low)
                merge_range(out, low, high, in->channels, FAN_IN);
            free(lanes);
            free(low);
        }
    }
    if (!failed) {
        fold(totals, in->batch, in->channels);
        fold(products, in->batch, in->channels);
        memcpy(out->total, totals, sizeof(double) * in->channels);
        memcpy(out->product, products, sizeof(double) * in->channels);
        if (out->low)
            settle_range(in, out);
    }
    free(totals);
    return failed;
}

/* The sums of up to 256 rows: of 16 rows from 0, and of 16 of these from 0. */
static void sum_rows(const Channels *in, int64_t first, Interval passing, double *restrict few, float *restrict g,
                     double *restrict total, float *restrict low, float *restrict high) {
    const int64_t width = in->channels, last = smaller(first + CHUNK, in->rows);
    double *restrict product = total + width;
    memset(total, 0, sizeof(double) * 2 * width);
    for (int64_t row = first; row < last; row += FAN_IN) {
        const int64_t end = smaller(row + FAN_IN, last);
        memset(few, 0, sizeof(double) * 2 * width);
        for (int64_t at = row; at < end; at += in->tile) {
            const int64_t rows = smaller(in->tile, end - at);
            const float *x = in->x + at * width;
            if (in->grad)
                passing_span(x, in->grad + at * width, g, rows * width, in->factor, in->shift, 1, passing);
            for (int64_t r = 0; r < rows; r++) {
                const float *from = x + r * width, *weight = in->grad ? g + r * width : from;
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    few[c] += (double)weight[c];
                    few[width + c] += (double)weight[c] * (double)from[c];
                }
                if (in->grad)
                    continue;
#pragma omp simd
                for (int64_t c = 0; c < width; c++) {
                    low[c] = from[c] < low[c] ? from[c] : low[c];
                    high[c] = from[c] > high[c] ? from[c] : high[c];
                }
            }
        }
        for (int64_t c = 0; c < width; c++) {
            total[c] += few[c];
            product[c] += few[width + c];
        }
    }
}

int qtool_row_sums(const Channels *in, Bounds bounds, const Grid *grid, Sums *out, int threads) {
    const int64_t width = in->channels, units = (in->rows + CHUNK - 1) / CHUNK;
    const Interval passing = passing_interval(grid, bounds);
    double *sums = malloc(sizeof(double) * (units + 1) * 2 * width + 1);
    int failed = !sums;
    if (out->low)
        fill_range(out->low, out->high, width);
    if (!failed) {
#pragma omp parallel num_threads(threads) if (threads > 1) reduction(| : failed)
        {
            double *few = malloc(sizeof(double) * 2 * width + 1);
            float *g = malloc(sizeof(float) * (in->tile + 2) * width + 1), *low = g + in->tile * width;
            float *high = low + width;
            failed = !few || !g;
            if (!failed)
                fill_range(low, high, width);
#pragma omp for schedule(static)
            for (int64_t unit = 0; unit < units; unit++)
                if (few && g)
                    sum_rows(in, unit * CHUNK, passing, few, g, sums + unit * 2 * width, low, high);
#pragma omp critical
            if (!failed && out->low)
                merge_range(out, low, high, width, 1);
            free(few);
            free(g);
        }
    }
    if (!failed) {
        fold(sums, units, 2 * width);
        memcpy(out->total, sums, sizeof(double) * width);
        memcpy(out->product, sums + width, sizeof(double) * width);
        if (out->low)
            settle_range(in, out);
    }
    free(sums);
    return failed;
}

/* ---- normalize_grad ---- */

typedef struct {
    const float *x, *grad;
    float *out; /* may be x */
    const float *factor, *shift, *a, *m, *b, *k; /* m, b and k NULL: the statistics are frozen */
    int64_t channels, inner, count;
} Gradient;

INLINE void grad_span(const Gradient *in, int64_t at, int64_t length, int64_t c, Interval passing, const int step,
                      const int is_frozen) {
    const float *x = in->x + at, *grad = in->grad + at;
    const float *factor = in->factor + c, *shift = in->shift + c, *a = in->a + c;
    const float *m = is_frozen ? NULL : in->m + c, *b = is_frozen ? NULL : in->b + c, *k = is_frozen ? NULL : in->k + c;
    float *out = in->out + at;
#pragma omp simd
    for (int64_t i = 0; i < length; i++) {
        const float g = passed(x[i], grad[i], factor[i * step], shift[i * step], passing);
        const float direct = g * a[i * step];
        out[i] = is_frozen ? direct : direct + ((x[i] - m[i * step]) * b[i * step] + k[i * step]);
    }
}

void qtool_normalize_grad(const Gradient *in, Bounds bounds, const Grid *grid, int threads) {
    const int64_t blocks = (in->count + BLOCK - 1) / BLOCK;
    const int is_frozen = in->m == NULL;
    const Interval passing = passing_interval(grid, bounds);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t at = block * BLOCK;
        for (Run run = first_run(at, smaller(BLOCK, in->count - at), in->channels, in->inner); run.length;
             run = next_run(run, in->channels, in->inner)) {
            if (run.step && is_frozen)
                grad_span(in, at, run.length, run.index, passing, 1, 1);
            else if (run.step)
                grad_span(in, at, run.length, run.index, passing, 1, 0);
            else if (is_frozen)
                grad_span(in, at, run.length, run.index, passing, 0, 1);
            else
                grad_span(in, at, run.length, run.index, passing, 0, 0);
            at += run.length;
        }
    }
}
